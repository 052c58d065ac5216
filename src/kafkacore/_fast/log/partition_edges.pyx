"""Implements partition_edges.pyi: the queue of partitions whose ISR may have to change."""

cimport cython

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport load64, store64
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.isr_edges cimport (
    BROKER_ACTIVE, BROKER_FENCED, BROKER_LEAVING, BrokerState, IsrLink, isr_edges_new, isr_edges_oldest,
    isr_edges_release, isr_edges_set_brokers, isr_edges_take,
)
from kafkacore._fast.log.partition cimport Partition, partition_of_link, partition_release
from kafkacore._fast.log.partition_role cimport partition_check_lag
from kafkacore._fast.wait.mail cimport inbox_awake, inbox_deliver, inbox_may_sleep, inbox_post, inbox_silence
from kafkacore._fast.world.environment cimport Environment

from kafkacore._fast.base.uuid import Uuid

FENCED = BROKER_FENCED
LEAVING = BROKER_LEAVING
ACTIVE = BROKER_ACTIVE

cdef enum:
    AT_ONCE = 64


@cython.no_gc  # it is part of no reference cycle, and its environment must outlive the inbox
cdef class PartitionEdges:

    def __cinit__(self, int64_t max_lag_ms, Environment environment=None):
        cdef int error
        self.environment = environment
        self.edges = isr_edges_new(environment.env.agenda if environment is not None else NULL, max_lag_ms, &error)
        if self.edges == NULL:
            raise OSError(-error, "no file descriptor is left for an inbox; raise the limit of open files")

    def __dealloc__(self):
        with nogil:
            isr_edges_release(self.edges)

    @property
    def max_lag_ms(self):
        return load64(&self.edges.max_lag_ms)

    @max_lag_ms.setter
    def max_lag_ms(self, int64_t max_lag_ms):
        store64(&self.edges.max_lag_ms, max_lag_ms)

    def fileno(self):
        return self.edges.inbox.eventfd

    def __len__(self):
        cdef int32_t count
        with nogil:
            mutex_lock(&self.edges.lock)
            count = self.edges.waiting.count
            mutex_unlock(&self.edges.lock)
        return count

    @property
    def leading(self):
        cdef int32_t count
        with nogil:
            mutex_lock(&self.edges.lock)
            count = self.edges.leading.count
            mutex_unlock(&self.edges.lock)
        return count

    def set_brokers(self, brokers):
        cdef list rows = sorted(brokers)
        cdef int32_t count = <int32_t> len(rows)
        cdef int32_t i
        cdef BrokerState *made = <BrokerState *> calloc(count + 1, sizeof(BrokerState))
        if made == NULL:
            raise MemoryError
        try:
            for i, (broker_id, state, epoch) in enumerate(rows):
                made[i].broker_id, made[i].state, made[i].epoch = broker_id, state, epoch
        except BaseException:
            free(made)
            raise
        with nogil:
            isr_edges_set_brokers(self.edges, made, count)

    def check_lag(self, int32_t most=1 << 30):
        cdef IsrLink *links[AT_ONCE]
        cdef int32_t i, got, looked = 0
        cdef int32_t left = <int32_t> min(most, self.leading)
        with nogil:
            while left > 0:
                got = isr_edges_oldest(self.edges, links, min(left, <int32_t> AT_ONCE))
                for i in range(got):
                    partition_check_lag(partition_of_link(links[i]))
                    partition_release(partition_of_link(links[i]))
                looked += got
                left -= AT_ONCE
        return looked

    def take(self, int32_t most):
        cdef IsrLink **links = <IsrLink **> malloc((max(most, 0) + 1) * sizeof(IsrLink *))
        cdef Partition *p
        cdef unsigned char topic_id[16]
        cdef int32_t i, got
        cdef list found = []
        if links == NULL:
            raise MemoryError
        with nogil:
            inbox_awake(&self.edges.inbox)
            inbox_silence(&self.edges.inbox)
            while True:
                inbox_deliver(&self.edges.inbox)
                if inbox_may_sleep(&self.edges.inbox):
                    break
            got = isr_edges_take(self.edges, links, most)
        if len(self):
            with nogil:
                inbox_post(&self.edges.inbox, &self.edges.mail)
        for i in range(got):
            p = partition_of_link(links[i])
            with nogil:
                mutex_lock(&p.log.lock)
                memcpy(topic_id, p.topic_id, 16)
                mutex_unlock(&p.log.lock)
            found.append((Uuid(topic_id[:16]), p.index))
            with nogil:
                partition_release(p)
        free(links)
        return found
