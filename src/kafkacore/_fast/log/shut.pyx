"""Implements shut.pxd: stops a log's work on its files."""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.commit cimport log_sync_segment
from kafkacore._fast.log.epochs_checkpoint cimport log_epochs_wanted, log_save_epochs
from kafkacore._fast.log.files cimport write_epochs, write_producer_snapshot
from kafkacore._fast.log.jobs cimport FILES_ROUNDS, wait_for_files
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_LAZY, LOG_OPEN, LOG_OPENING, LOG_ROLLING, SegmentList, log_block, log_fail,
    log_hold_segments, log_wake_blocked, log_wake_changed, segments_release,
)
from kafkacore._fast.log.segment_index cimport segment_end_times, segment_seal
from kafkacore._fast.log.truncate cimport log_begin_change
from kafkacore._fast.wait.park cimport WAKE_GONE, WAKE_READY


cdef bint log_has_jobs(const Log *log) noexcept nogil:
    return log.epochs_job_queued or log.ahead_job_queued or log.swapping or log.dropping


cdef int log_hold_still(Log *log, Waiter *blocked) noexcept nogil:
    cdef int result = 0
    mutex_lock(&log.lock)
    if log.state == LOG_FAILED or log.state == LOG_CLOSED or load32(&log.dir.offline):
        result = KAFKA_STORAGE_ERROR
    elif log_has_jobs(log) or (log.state != LOG_OPEN and log.state != LOG_LAZY):
        log_block(log, blocked)
        result = LOG_BLOCKED
    else:
        # A log leaves the states ROLLING and OPENING only at the end of a job. No job is running now, so the log stays
        # in its new state until `log_go_on`.
        log.state = LOG_ROLLING if log.state == LOG_OPEN else LOG_OPENING
    mutex_unlock(&log.lock)
    return result


cdef void log_go_on(Log *log) noexcept nogil:
    mutex_lock(&log.lock)
    if log.state == LOG_ROLLING or log.state == LOG_OPENING:
        log.state = LOG_OPEN if log.segments != NULL else LOG_LAZY
        log_save_epochs(log)
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    log_wake_changed(log, WAKE_READY)


cdef int log_stop(Log *log, Waiter *blocked) noexcept nogil:
    cdef int result = 0
    mutex_lock(&log.lock)
    # A log that is being deleted need not wait for a checkpoint, because it will not grow again.
    if (log.state == LOG_OPENING or (log.state == LOG_ROLLING and not log.awaits_checkpoint)
            or log_has_jobs(log)):
        log_block(log, blocked)
        result = LOG_BLOCKED
    elif log.state != LOG_FAILED:
        log.state = LOG_CLOSED
    mutex_unlock(&log.lock)
    if result == 0:
        log_wake_blocked(log, WAKE_GONE)
    return result


cdef int save_all(Log *log, SegmentList *list) noexcept nogil:
    cdef int64_t next_base
    cdef int32_t i
    cdef int result = 0
    if log_epochs_wanted(log):
        result = write_epochs(log, log.path, True)
    mutex_lock(&log.lock)
    if result == 0:
        result = segment_end_times(list.items[list.count - 1])
    mutex_unlock(&log.lock)
    if result == 0:
        result = segment_seal(list.items[list.count - 1])
    if result == 0 and log.snapshot_offset < log.end_offset:
        result = write_producer_snapshot(log, log.path, log.end_offset, True)
    for i in range(list.count):
        if result == 0 and not load32(&list.items[i].wholly_synced):
            next_base = list.items[i + 1].base_offset if i + 1 < list.count else -1
            result = log_sync_segment(log, list.items[i], next_base, log.cuts)
    if result == 0:
        result = log.dir.disk.sync_directory(log.dir.disk.self, log.path)
    return result


cdef int log_shut(Log *log, Waiter *blocked) noexcept nogil:
    cdef SegmentList *list
    cdef int rounds_left = FILES_ROUNDS
    cdef int result
    mutex_lock(&log.lock)
    if log.state == LOG_LAZY or log.state == LOG_CLOSED or log.state == LOG_FAILED:
        if log.state == LOG_LAZY:
            log.state = LOG_CLOSED
        mutex_unlock(&log.lock)
        return 0
    result = LOG_BLOCKED if log_has_jobs(log) else log_begin_change(log, blocked)
    if result == LOG_BLOCKED:
        log_block(log, blocked)
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    list = log_hold_segments(log)
    while True:
        result = save_all(log, list)
        if not wait_for_files(result, &rounds_left):
            break
    segments_release(list)
    if result < 0:
        log_fail(log, -result)
        return result
    mutex_lock(&log.lock)
    log.synced_offset = log.end_offset
    log.unflushed_since_ns = -1
    log.state = LOG_CLOSED
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    return 0
