"""Implements delete.pxd: deletion at the start of a log (UnifiedLog.deleteOldSegments,
maybeIncrementLogStartOffset)."""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE
from kafkacore._fast.base.atomics cimport add32, load32, load64
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.epochs cimport epochs_truncate_start
from kafkacore._fast.log.epochs_checkpoint cimport log_save_epochs
from kafkacore._fast.log.jobs cimport FILES_ROUNDS, is_short_of_files, wait_for_files
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_OPEN, SegmentList, log_dir, log_fail_in, log_hold_segments, log_now_ms,
    log_wake_blocked, log_wake_changed, segments_release,
)
from kafkacore._fast.log.read cimport segment_max_timestamp
from kafkacore._fast.log.roll cimport log_start_roll
from kafkacore._fast.log.segment cimport Segment, segment_sync_names, segment_unlink
from kafkacore._fast.log.truncate cimport log_keep_segments
from kafkacore._fast.wait.io cimport LogDir
from kafkacore._fast.wait.park cimport WAKE_READY


cdef int unlink_first(SegmentList *list, int32_t count) noexcept nogil:
    """Unlinks the segments from the oldest on. A sync makes each removal durable before the next one, which may belong
    to the next deletion. Otherwise a crash could bring back a segment before a gap. Then the log would begin with that
    segment, and the load would drop the segments after the gap. Waits if no file descriptor is free, because the log no
    longer has these segments, so no later deletion would remove their files."""
    cdef int rounds_left = FILES_ROUNDS
    cdef int32_t i = 0
    cdef int result = 0
    while result == 0 and i < count:
        result = segment_unlink(list.items[i])
        if result == 0:
            result = segment_sync_names(list.items[i])
        if result == 0:
            i += 1
        elif wait_for_files(result, &rounds_left):
            result = 0
    return result


cdef bint begins_with(const Log *log, const SegmentList *list, int32_t count) noexcept nogil:
    """Returns whether the log still begins with the first segments of `list`. Call this with the lock held."""
    cdef int32_t i
    if log.segments == NULL or log.segments.count <= count:
        return False
    for i in range(count):
        if log.segments.items[i] != list.items[i]:
            return False
    return True


cdef int drop_first(Log *log, SegmentList *list, int32_t count) noexcept nogil:
    """Drops the first `count` segments of `list`, which is a recent copy of the log's list. Never drops the active
    segment. Appends can continue in the meantime. Returns the number of dropped segments, or -KAFKA_STORAGE_ERROR if
    the directory has gone offline."""
    cdef LogDir *dir
    cdef int result
    if count <= 0 or count >= list.count:
        return 0
    mutex_lock(&log.lock)
    # If two threads unlinked segments at the same time, a crash could leave a segment before a gap. So only one thread
    # at a time drops segments. Afterwards this thread also drops the segments that other threads have hidden
    # (`log_drop_hidden`). Nothing is dropped if the segments have been truncated, compacted or moved in the meantime.
    # If a compaction is replacing segments now, the compaction repeats the deletion when it has finished. After a
    # truncation, `log_delete_old` repeats the deletion. The directory of a closed log may have another name now, and
    # another log may have its paths. In a failed log, an earlier deletion may have left files of segments that it
    # dropped.
    if (log.dropping or log.swapping or log.state == LOG_CLOSED or log.state == LOG_FAILED
            or not begins_with(log, list, count)):
        mutex_unlock(&log.lock)
        return 0
    dir = log.dir
    result = log_keep_segments(log, count, log.segments.count, NULL)
    log.cuts += 1
    if result == 0 and log.log_start_offset < log.segments.items[0].base_offset:
        log.log_start_offset = log.segments.items[0].base_offset
    if result == 0:
        log.local_log_start_offset = log.log_start_offset
        epochs_truncate_start(log, log.log_start_offset)
        log_save_epochs(log)
    log.dropping = True
    mutex_unlock(&log.lock)
    log_wake_changed(log, WAKE_READY)
    if result == 0:
        result = unlink_first(list, count)
    if result < 0:
        log_fail_in(log, dir, -result)  # before another thread can drop the next segments
    mutex_lock(&log.lock)
    log.dropping = False
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    return -KAFKA_STORAGE_ERROR if result < 0 else count


cdef int log_hide_below(Log *log, int64_t offset) noexcept nogil:
    if log.state == LOG_FAILED or load32(&log.dir.offline):
        return KAFKA_STORAGE_ERROR
    if offset > log.end_offset:
        return OFFSET_OUT_OF_RANGE
    if offset > log.log_start_offset:
        log.log_start_offset = log.local_log_start_offset = offset
        epochs_truncate_start(log, offset)
        log_save_epochs(log)
    return 0


cdef int log_drop_hidden(Log *log) noexcept nogil:
    cdef SegmentList *list
    cdef int64_t log_start_offset
    cdef int32_t gone
    cdef int result = 1
    log_wake_changed(log, WAKE_READY)
    while result > 0:  # while this thread dropped segments, other threads may have hidden more records
        mutex_lock(&log.lock)
        list = log.segments
        if list != NULL:
            add32(&list.refs, 1)
        log_start_offset = log.log_start_offset
        mutex_unlock(&log.lock)
        if list == NULL:
            return 0
        gone = 0
        while gone + 1 < list.count and list.items[gone + 1].base_offset <= log_start_offset:
            gone += 1
        result = drop_first(log, list, gone)
        segments_release(list)
    return -result


cdef int log_advance_start(Log *log, int64_t offset) noexcept nogil:
    cdef int error
    mutex_lock(&log.lock)
    error = log_hide_below(log, offset)
    mutex_unlock(&log.lock)
    return error if error != 0 else log_drop_hidden(log)


cdef int is_due(Log *log, Segment *segment, int64_t retention_ms, int64_t excess_bytes) noexcept nogil:
    """Returns 1 if the segment must be deleted because of retention.ms or retention.bytes, else 0. Returns -errno after
    an error."""
    cdef int64_t newest_ms, unused
    cdef int result
    if excess_bytes >= load64(&segment.size):
        return 1
    if retention_ms < 0:
        return 0
    result = segment_max_timestamp(log, segment, &newest_ms, &unused)
    if result < 0:
        return result
    if newest_ms < 0:
        newest_ms = segment.modified_ms
    return log_now_ms(log) - newest_ms > retention_ms


cdef int count_due(Log *log, SegmentList *list, int64_t log_start_offset, int64_t high_watermark,
                   int64_t retention_ms, int64_t retention_bytes) noexcept nogil:
    cdef int64_t excess = load64(&log.total_bytes) - retention_bytes if retention_bytes >= 0 else -1
    cdef int64_t end_offset
    cdef int32_t i
    cdef int due
    for i in range(list.count):
        end_offset = list.items[i + 1].base_offset if i + 1 < list.count else high_watermark
        if end_offset > high_watermark or (i + 1 == list.count and load64(&list.items[i].size) == 0):
            return i
        if i + 1 == list.count or end_offset > log_start_offset:
            due = is_due(log, list.items[i], retention_ms, excess)
            if due <= 0:
                return due if due < 0 else i
        excess -= load64(&list.items[i].size)
    return list.count


cdef int log_delete_old(Log *log, int64_t high_watermark, Waiter *blocked) noexcept nogil:
    cdef LogDir *dir = log_dir(log)
    cdef SegmentList *list = log_hold_segments(log)
    cdef int64_t retention_ms, retention_bytes, log_start_offset
    cdef int due
    if list == NULL:
        return 0
    mutex_lock(&log.lock)
    if log.state == LOG_CLOSED:
        mutex_unlock(&log.lock)
        segments_release(list)
        return 0
    retention_ms = log.config.retention_ms if log.config.delete_policy else -1
    retention_bytes = log.config.retention_bytes if log.config.delete_policy else -1
    log_start_offset = log.log_start_offset
    mutex_unlock(&log.lock)
    due = count_due(log, list, log_start_offset, high_watermark, retention_ms, retention_bytes)
    if due < 0 and (load32(&list.items[0].dropped) or load32(&list.items[list.count - 1].dropped)):
        due = 0  # the log has moved or begun anew in the meantime, and its files were removed, the last ones first
    if due < 0:
        if not is_short_of_files(due):  # otherwise the next check of the retention tries again
            log_fail_in(log, dir, -due)
        due = -KAFKA_STORAGE_ERROR
    if due == list.count:
        # All segments must be deleted. A new, empty active segment preserves the log end offset on disk.
        mutex_lock(&log.lock)
        if log.state == LOG_OPEN and log.active == list.items[list.count - 1] and log.end_offset == high_watermark:
            due = log_start_roll(log, log.end_offset, blocked)
        if due != LOG_BLOCKED:
            due = list.count - 1
        mutex_unlock(&log.lock)
    if due > 0:
        due = drop_first(log, list, due)
    segments_release(list)
    if due > 0 and log_drop_hidden(log) != 0:
        due = -KAFKA_STORAGE_ERROR
    return due
