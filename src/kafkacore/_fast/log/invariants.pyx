"""Implements invariants.pxd: the invariants of a partition and its log."""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport load32, load64
from kafkacore._fast.log.log cimport LOG_CLOSED, LOG_LAZY, LOG_OPEN, LOG_ROLLING, RECENT_BATCHES, Log, Recent
from kafkacore._fast.log.partition cimport ROLE_GONE, ROLE_NONE, Partition
from kafkacore._fast.log.segment cimport Segment


cdef void check_offsets(const Log *log) noexcept nogil:
    debug_assert(0 <= log.log_start_offset <= log.local_log_start_offset <= log.end_offset,
                 b"0 <= log start <= local log start <= log end")
    debug_assert(log.synced_offset <= log.end_offset, b"the synced offset is within the log")
    debug_assert(log.commit_offset <= log.end_offset, b"the committer is to sync nothing beyond the log")
    # A truncation (LOG_ROLLING) moves the log's end before it replays the producers. Until then, and after a failed
    # replay, the oldest open transaction may be above the log's end.
    if log.state == LOG_OPEN or log.state == LOG_LAZY:
        debug_assert(-1 <= log.first_unstable_offset <= log.end_offset,
                     b"the oldest open transaction is within the log")


cdef void check_segments(const Log *log) noexcept nogil:
    cdef const Segment *segment
    cdef const Segment *before = NULL
    cdef int32_t i
    if log.segments == NULL:
        debug_assert(log.state != LOG_OPEN and log.state != LOG_ROLLING, b"an open log has segments")
        return
    debug_assert(log.segments.count > 0, b"a list of segments is not empty")
    debug_assert(load32(&log.segments.refs) > 0, b"the log holds a reference to its list of segments")
    for i in range(log.segments.count):
        segment = log.segments.items[i]
        debug_assert(before == NULL or before.base_offset < segment.base_offset, b"segments are sorted by offset")
        debug_assert(load32(&segment.refs) > 0, b"the list holds a reference to each segment")
        debug_assert(load64(&segment.size) >= 0, b"the size of a segment is not negative")
        before = segment
    debug_assert(before == log.active, b"the active segment is the last segment")
    if log.state == LOG_OPEN:
        debug_assert(log.active.base_offset <= log.end_offset, b"the active segment begins within the log")
        debug_assert(log.segments.items[0].base_offset <= log.log_start_offset,
                     b"the first segment holds the log start")


cdef void check_epochs(const Log *log) noexcept nogil:
    cdef int32_t i
    debug_assert(0 <= log.epoch_count <= log.epoch_capacity, b"the epoch entries fit into their memory block")
    for i in range(1, log.epoch_count):
        debug_assert(log.epochs[i - 1].epoch < log.epochs[i].epoch, b"leader epochs increase")
        debug_assert(log.epochs[i - 1].start_offset < log.epochs[i].start_offset, b"leader epochs begin in order")
    # After a failed load, the log may have epochs without having an end offset.
    if log.epoch_count and log.state == LOG_OPEN:
        debug_assert(log.epochs[log.epoch_count - 1].start_offset <= log.end_offset,
                     b"the last leader epoch begins within the log")


cdef void check_recent(const Log *log) noexcept nogil:
    cdef const Recent *recent = log.recent
    cdef int32_t i
    cdef int64_t position = -1
    if recent == NULL:
        return
    debug_assert(0 <= recent.count <= RECENT_BATCHES, b"recent batches fit their ring")
    for i in range(recent.count):
        debug_assert(recent.batches[(recent.first + i) % RECENT_BATCHES].position > position,
                     b"recent batches are sorted by position")
        position = recent.batches[(recent.first + i) % RECENT_BATCHES].position
    debug_assert(recent.count == 0 or position < load64(&log.active.size), b"recent batches are in the active segment")


cdef void check_partition(const void *guarded) noexcept nogil:
    cdef const Partition *p = <const Partition *> guarded
    debug_assert(LOG_LAZY <= p.log.state <= LOG_CLOSED, b"a log is in one of its states")
    debug_assert(ROLE_NONE <= p.role <= ROLE_GONE, b"a partition has one of its roles")
    debug_assert(load32(&p.refs) > 0, b"the thread that had the lock holds a reference to the partition")
    check_offsets(&p.log)
    check_segments(&p.log)
    check_epochs(&p.log)
    check_recent(&p.log)
    debug_assert(p.last_stable_offset <= p.high_watermark <= p.log.end_offset,
                 b"last stable offset <= high watermark <= log end")
