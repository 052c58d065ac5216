"""Damages native data on purpose: tests see the assertions of a debug build fail."""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from kafkacore._fast.base.assertions cimport owner_take
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.hot.fetch_session cimport FetchSessions, session_new, sessions_init
from kafkacore._fast.hot.session_partitions cimport FetchSession
from kafkacore._fast.log.log cimport LOG_OPEN, Log
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.plane.connection cimport Connection, Reactor, connection_close
from kafkacore._fast.wait.memory cimport Budget, budget_init, budget_release
from kafkacore._fast.wait.ring cimport Ring, ring_new, ring_pop

cdef Reactor reactor
cdef Connection connection


def ring_over_capacity() -> None:
    cdef Ring *ring = ring_new(2)
    cdef void *items[4]
    ring.tail = 5
    with nogil:
        ring_pop(ring, items, 4)


def ring_lost_waiter() -> None:
    cdef Ring *ring = ring_new(2)
    ring.waiting = 1
    with nogil:
        mutex_lock(&ring.lock)
        mutex_unlock(&ring.lock)


def budget_released_twice() -> None:
    cdef Budget budget
    budget_init(&budget, 100)
    budget.used = 10
    with nogil:
        budget_release(&budget, 10, False)
        budget_release(&budget, 10, False)


def budget_lost_reservation() -> None:
    cdef Budget budget
    budget_init(&budget, 100)
    budget.waiting = 1
    with nogil:
        mutex_lock(&budget.lock)
        mutex_unlock(&budget.lock)


def sessions_miscounted() -> None:
    cdef FetchSessions cache
    cdef uint64_t seed[3]
    memset(seed, 0, sizeof(seed))
    sessions_init(&cache, 10, 1 << 20, seed)
    cache.count = 1
    with nogil:
        mutex_lock(&cache.lock)
        mutex_unlock(&cache.lock)


def session_miscounted() -> None:
    cdef FetchSessions cache
    cdef FetchSession *session
    cdef uint64_t seed[3]
    memset(seed, 0, sizeof(seed))
    sessions_init(&cache, 10, 1 << 20, seed)
    session = session_new(&cache, False)
    session.order.count = 1
    with nogil:
        mutex_lock(&session.lock)
        mutex_unlock(&session.lock)


def partition(PartitionHandle handle not None, str fault) -> None:
    """Damages a field of the partition and lets its lock go."""
    cdef Partition *p = handle.partition
    cdef Log *log = &p.log
    with nogil:
        mutex_lock(&log.lock)
    if fault == "start behind end":
        log.log_start_offset = log.end_offset + 1
    elif fault == "synced behind end":
        log.synced_offset = log.end_offset + 1
    elif fault == "high watermark behind end":
        p.high_watermark = log.end_offset + 1
    elif fault == "unstable offset behind end":
        log.first_unstable_offset = log.end_offset + 1
    elif fault == "open without segments":
        log.state = LOG_OPEN
    elif fault == "unknown role":
        p.role = 99
    elif fault == "unknown state":
        log.state = 99
    else:
        raise ValueError(fault)
    with nogil:
        mutex_unlock(&log.lock)


def take_connection() -> None:
    """The calling thread becomes the owner of a connection."""
    connection.reactor = &reactor
    connection.is_closed = True
    owner_take(&reactor.owner)


def close_connection() -> None:
    with nogil:
        connection_close(&connection)
