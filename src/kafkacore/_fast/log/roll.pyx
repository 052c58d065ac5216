"""Implements roll.pxd: rolls of a log (UnifiedLog.roll)."""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.commit cimport log_commit_soon
from kafkacore._fast.log.files cimport write_producer_snapshot
from kafkacore._fast.log.jobs cimport log_end_job, log_of_job, log_start_job
from kafkacore._fast.log.log cimport (
    LOG_OPEN, LOG_ROLLING, LogConfig, config_release, log_hold_config, log_now_ms, log_set_segments, log_wake_blocked,
    recent_clear,
)
from kafkacore._fast.log.segment cimport (
    Segment, file_of, segment_create, segment_hold, segment_new, segment_release,
)
from kafkacore._fast.log.segment_index cimport segment_end_times, segment_forget_indexes, segment_seal
from kafkacore._fast.wait.io cimport Job, io_submit
from kafkacore._fast.wait.park cimport WAKE_READY
from kafkacore._fast.world.environment cimport Disk

cdef enum:
    AHEAD_BYTES = 64 << 20


cdef int64_t log_preallocated_bytes(Log *log) noexcept nogil:
    cdef LogConfig *config = log_hold_config(log)
    cdef int64_t size = config.segment_bytes if config.preallocate else 0
    config_release(config)
    return size


cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil:
    log.roll_offset = base_offset
    return log_start_job(log, LOG_ROLLING, run_roll, NULL, blocked)


cdef int append_segment(Log *log, Segment *segment) noexcept nogil:
    """Adds a segment to the end of the list and takes over its reference. Removes the indexes of the sealed segment
    from memory."""
    cdef Segment *sealed = log.active
    cdef int32_t count = log.segments.count
    cdef int32_t i
    cdef int result
    cdef Segment **items = <Segment **> malloc((count + 1) * sizeof(Segment *))
    if items == NULL:
        return -ENOMEM
    for i in range(count):
        items[i] = log.segments.items[i]
        segment_hold(items[i])
    items[count] = segment
    result = log_set_segments(log, items, count + 1)
    if result < 0:
        for i in range(count):
            segment_release(items[i])
    else:
        segment_forget_indexes(sealed)
        recent_clear(log)
    free(items)
    return result


cdef int roll(Log *log) noexcept nogil:
    """Performs a roll. No append runs during a roll, but reads continue."""
    cdef Segment *segment
    cdef int result
    mutex_lock(&log.lock)
    segment = log.active
    segment_hold(segment)
    result = segment_end_times(segment)
    mutex_unlock(&log.lock)
    if result == 0:
        result = segment_seal(segment)
    segment_release(segment)
    if result == 0 and log.snapshot_offset < log.roll_offset:
        result = write_producer_snapshot(log, log.path, log.roll_offset, False)
    if result < 0:
        return result
    segment = segment_new(log.dir.disk, log.path, log.roll_offset)
    if segment == NULL:
        return -ENOMEM
    result = segment_create(segment, log_now_ms(log), False, log_preallocated_bytes(log))
    if result == 0:
        mutex_lock(&log.lock)
        result = append_segment(log, segment)
        if result == 0:
            log.snapshot_offset = log.roll_offset
            if log.end_offset < log.roll_offset:
                # The new segment begins after a gap. This happens in a copy of a log that ends with a gap (move.pxd),
                # and before a fetched batch (`next_base` in append.pyx).
                log.end_offset = log.roll_offset
            if log.state == LOG_ROLLING:
                log.state = LOG_OPEN
        mutex_unlock(&log.lock)
    if result < 0:
        segment_release(segment)
    return result


cdef void run_roll(Job *job) noexcept nogil:
    cdef Log *log = log_of_job(job)
    cdef int64_t base_offset = log.roll_offset  # the next roll may begin as soon as this one has finished
    cdef int result = roll(log)
    if result == 0:
        log_commit_soon(log, base_offset)  # syncs the sealed segment, as Kafka flushes after a roll
    log_end_job(log, LOG_OPEN, result)


# --- reserving blocks ahead ---

cdef Log *log_of_ahead_job(Job *job) noexcept nogil:
    return <Log *> (<char *> job - <size_t> &(<Log *> NULL).ahead_job)


cdef void log_reserve_ahead(Log *log) noexcept nogil:
    if log.ahead_job_queued:
        return
    memset(&log.ahead_job, 0, sizeof(Job))
    log.ahead_job.run = run_reserve_ahead
    log.ahead_job_queued = True
    log.hold(log)
    if io_submit(log.dir, &log.ahead_job) < 0:
        log.ahead_job_queued = False
        log.release(log)


cdef void run_reserve_ahead(Job *job) noexcept nogil:
    """Reserves disk blocks, because a write into reserved blocks costs the file system a quarter less."""
    cdef Log *log = log_of_ahead_job(job)
    cdef const Disk *disk = log.dir.disk
    cdef Segment *segment
    cdef int64_t start, size
    cdef int result
    mutex_lock(&log.lock)
    segment = log.active
    segment_hold(segment)
    start = segment.reserved if segment.reserved > segment.size else segment.size
    size = log.config.segment_bytes - start
    mutex_unlock(&log.lock)
    if size > AHEAD_BYTES:
        size = AHEAD_BYTES
    # A failure is no error here. Either the file system does not support the operation, or it has no space left. In the
    # second case, an append will notice.
    result = disk.want(disk.self, file_of(segment), start, <size_t> size) if size > 0 else -1
    mutex_lock(&log.lock)
    if load32(&segment.sealed) == 0:
        segment.reserved = start + size if result == 0 else log.config.segment_bytes
    log.ahead_job_queued = False
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    segment_release(segment)
    log.release(log)
