"""The Python interface of a fetcher. In simulated worlds and in tests, Python drives the fetcher."""

cimport cython

from libc.stdint cimport int16_t, int32_t, int64_t

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from kafkacore._fast.base.atomics cimport load32, load64
from kafkacore._fast.base.cursor cimport Writer, writer_free, writer_init
from kafkacore._fast.follow.absorb cimport fetcher_absorb
from kafkacore._fast.follow.ask cimport (
    LEAST_FETCH, LEAST_LIST_OFFSETS, MOST_FETCH, MOST_LIST_OFFSETS, fetcher_ask,
)
from kafkacore._fast.follow.fetcher cimport (
    fetcher_advance, fetcher_connected, fetcher_count, fetcher_due_ms, fetcher_failed, fetcher_follow, fetcher_new,
    fetcher_stop, fetcher_stop_all,
)
from kafkacore._fast.follow.followed cimport (
    ASK_FETCH, ASK_NOTHING, Event, Fetcher, FetcherLimits, Followed, fetcher_find, fetcher_release,
)
from kafkacore._fast.log.partition cimport partition_release
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.replication_quota cimport ReplicationQuota
from kafkacore._fast.wait.mail cimport inbox_awake, inbox_deliver, inbox_may_sleep, inbox_silence
from kafkacore._fast.world.environment cimport Environment

from typing import NamedTuple

from kafkacore._fast.base.errors import ProtocolError

FETCH_VERSIONS = (LEAST_FETCH, MOST_FETCH)
LIST_OFFSETS_VERSIONS = (LEAST_LIST_OFFSETS, MOST_LIST_OFFSETS)
STATES = ("fetches", "delayed", "blocked", "cuts", "asks-end", "asks-start", "failed", "gone", "syncs")
EVENTS = ("cut", "cut-to-end", "restart", "corrupt", "newer-epoch", "fenced", "failed", "refused")

cdef enum:
    FETCH_KEY = 1
    LIST_OFFSETS_KEY = 2
    MOST_REQUEST_BYTES = 100 << 20


class FetcherEvent(NamedTuple):
    kind: str
    topic: str
    partition: int
    first: int
    second: int


class FetcherCounts(NamedTuple):
    requests: int
    bytes: int
    most_lag: int
    partitions: int
    failed: int


@cython.no_gc  # the handle is part of no reference cycle, and its directories must outlive its partitions
cdef class FetcherHandle:
    """Owns one Fetcher. `fileno` becomes readable when `deliver` has something to do."""
    cdef Fetcher *fetcher
    cdef Environment environment  # keeps alive the world to which the fetcher's inbox belongs
    # The directories of all partitions so far, because a native reference does not keep their Python objects alive.
    cdef set directories
    cdef ReplicationQuota quota

    def __cinit__(self, Environment environment not None, int32_t node_id, *, int32_t max_wait_ms=500,
                  int32_t min_bytes=1, int32_t response_max_bytes=10485760, int32_t max_bytes=1048576,
                  int32_t backoff_ms=1000, ReplicationQuota quota=None):
        cdef FetcherLimits limits
        cdef int error
        self.environment = environment
        self.directories = set()
        limits.node_id = node_id
        limits.max_wait_ms = max_wait_ms
        limits.min_bytes = min_bytes
        limits.response_max_bytes = response_max_bytes
        limits.max_bytes = max_bytes
        limits.backoff_ms = backoff_ms
        self.quota = quota
        limits.quota = &quota.quota if quota is not None else NULL
        self.fetcher = fetcher_new(&limits, NULL, environment.env.agenda, &error)
        if self.fetcher == NULL:
            raise OSError(-error, "no file descriptor is left for an inbox; raise the limit of open files")
        inbox_may_sleep(self.fetcher.inbox)

    def __dealloc__(self):
        if self.fetcher != NULL:
            self.stop_all()
            with nogil:
                fetcher_release(self.fetcher)

    def fileno(self):
        return self.fetcher.inbox.eventfd

    def deliver(self):
        """Processes the reports of the I/O threads. After this, `fileno` signals the next report."""
        with nogil:
            inbox_awake(self.fetcher.inbox)
            inbox_silence(self.fetcher.inbox)
            while True:
                inbox_deliver(self.fetcher.inbox)
                if inbox_may_sleep(self.fetcher.inbox):
                    break

    # --- partitions ---

    def follow(self, PartitionHandle partition not None, int32_t leader_epoch):
        cdef int error
        self.directories.add(partition.directory)
        with nogil:
            error = fetcher_follow(self.fetcher, partition.partition, leader_epoch)
        if error < 0:
            raise MemoryError

    def stop(self, PartitionHandle partition not None):
        with nogil:
            fetcher_stop(self.fetcher, partition.partition)

    def stop_all(self):
        with nogil:
            fetcher_stop_all(self.fetcher)

    def state(self, PartitionHandle partition not None):
        cdef Followed *each = fetcher_find(self.fetcher, partition.partition.topic_id, partition.partition.index)
        return STATES[each.state] if each != NULL else None

    def lag(self, PartitionHandle partition not None):
        cdef Followed *each = fetcher_find(self.fetcher, partition.partition.topic_id, partition.partition.index)
        return each.lag if each != NULL else -1

    @property
    def partitions(self):
        return self.fetcher.count

    @property
    def jobs(self):
        return self.fetcher.jobs_out

    @property
    def session(self):
        return self.fetcher.session_id, self.fetcher.session_epoch, self.fetcher.session_size

    # --- requests and answers ---

    def connected(self, int16_t fetch_version, int16_t list_offsets_version, int64_t broker_epoch):
        if not (LEAST_FETCH <= fetch_version <= MOST_FETCH
                and LEAST_LIST_OFFSETS <= list_offsets_version <= MOST_LIST_OFFSETS):
            raise ValueError(f"Fetch {fetch_version} or ListOffsets {list_offsets_version} is not supported")
        self.fetcher.broker_epoch = broker_epoch
        with nogil:
            fetcher_connected(self.fetcher, fetch_version, list_offsets_version)

    def ask(self):
        cdef Writer out
        cdef int asked
        writer_init(&out, MOST_REQUEST_BYTES)
        try:
            with nogil:
                asked = fetcher_ask(self.fetcher, &out)
            if asked < 0:
                self.failed()
                raise MemoryError
            if asked == ASK_NOTHING:
                return None
            body = (<const char *> out.data)[:out.size]
        finally:
            writer_free(&out)
        if asked == ASK_FETCH:
            return FETCH_KEY, self.fetcher.fetch_version, body
        return LIST_OFFSETS_KEY, self.fetcher.offsets_version, body

    def absorb(self, body):
        cdef Py_buffer view
        cdef int16_t error
        cdef int fault
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        with nogil:
            fault = fetcher_absorb(self.fetcher, <const unsigned char *> view.buf, view.len, &error)
        PyBuffer_Release(&view)
        if fault:
            raise ProtocolError(f"an answer to a follower's request cannot be read: fault {fault}")
        return error

    def failed(self):
        with nogil:
            fetcher_failed(self.fetcher)

    def advance(self, int64_t now_ms):
        with nogil:
            fetcher_advance(self.fetcher, now_ms)

    @property
    def due_ms(self):
        return fetcher_due_ms(self.fetcher)

    # --- reports ---

    def events(self):
        cdef int32_t count = self.fetcher.event_count
        self.fetcher.event_count = 0
        return take_events(self.fetcher.events, count)

    def count(self):
        with nogil:
            fetcher_count(self.fetcher)

    def counts(self):
        return counts_of(&self.fetcher.counts)


cdef list take_events(Event *events, int32_t count):
    cdef Event *event
    cdef int32_t i
    cdef list found = []
    for i in range(count):
        event = &events[i]
        topic = event.partition.topic[:event.partition.topic_size].decode()
        found.append(FetcherEvent(EVENTS[event.kind], topic, event.partition.index, event.first, event.second))
        with nogil:
            partition_release(event.partition)
    return found


cdef object counts_of(const Counts *counts):
    return FetcherCounts(load64(&counts.requests), load64(&counts.bytes), load64(&counts.most_lag),
                         load32(&counts.partitions), load32(&counts.failed))
