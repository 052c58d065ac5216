"""Truncation, deletion and shutdown of a log, as log_trim.pxd says."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from kafkacore._fast.base.atomics cimport load32, load64, store32, store64
from kafkacore._fast.log.epochs cimport epochs_truncate_end, epochs_truncate_start
from kafkacore._fast.wait.io cimport LogDir
from kafkacore._fast.log.log cimport (
    EPOCHS_BEHIND, LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_LAZY, LOG_OPEN, LOG_OPENING, LOG_ROLLING, SegmentList,
    log_block, log_dir, log_fail, log_fail_in, log_hold_segments, log_now_ms, log_set_segments, log_wake_blocked,
    log_wake_changed, recent_clear, segments_release,
)
from kafkacore._fast.log.files cimport write_epochs, write_producer_snapshot
from kafkacore._fast.log.open cimport log_epochs_wanted, log_save_epochs, log_start_roll, log_sync_segment
from kafkacore._fast.log.read cimport segment_max_timestamp
from kafkacore._fast.wait.park cimport WAKE_GONE, WAKE_READY
from kafkacore._fast.log.producers cimport producers_clear
from kafkacore._fast.log.producer_replay cimport log_replay_producers
from kafkacore._fast.log.segment cimport (
    Position, Segment, file_of, segment_create, segment_cut_entries, segment_cut_files, segment_end_times,
    segment_find, segment_hold, segment_largest_timestamp, segment_load_indexes, segment_new, segment_open_log,
    segment_release, segment_reserve, segment_seal, segment_sync_names, segment_unlink,
)
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.txn_index cimport txn_index_truncate

cdef enum:
    KAFKA_STORAGE_ERROR = 56
    OFFSET_OUT_OF_RANGE = 1


# --- having the log to oneself ---

cdef int begin_change(Log *log, Waiter *blocked) noexcept nogil:
    """Under the lock: from OPEN, no append and no roll until `end_change`."""
    if log.state == LOG_FAILED or log.state == LOG_CLOSED or load32(&log.dir.offline):
        return KAFKA_STORAGE_ERROR
    if log.state != LOG_OPEN or log.swapping:
        log_block(log, blocked)
        return LOG_BLOCKED
    log.state = LOG_ROLLING
    return 0


cdef int end_change(Log *log, int result) noexcept nogil:
    """Without the lock; `result` below zero takes the directory offline."""
    if result < 0:
        log_fail(log, -result)
        return KAFKA_STORAGE_ERROR
    mutex_lock(&log.lock)
    if log.state == LOG_ROLLING:
        log.state = LOG_OPEN
    log_save_epochs(log)
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    log_wake_changed(log, WAKE_READY)
    return 0


# --- the list ---

cdef int keep_range(Log *log, int32_t first, int32_t end, Segment *extra) noexcept nogil:
    """Under the lock: the list becomes its items [first, end), and `extra` (its count is taken over)."""
    cdef Segment **items
    cdef int32_t count = end - first
    cdef int32_t i
    cdef int result
    items = <Segment **> malloc((count + 1) * sizeof(Segment *))
    if items == NULL:
        return -ENOMEM
    for i in range(count):
        items[i] = log.segments.items[first + i]
        segment_hold(items[i])
    if extra != NULL:
        items[count] = extra
    result = log_set_segments(log, items, count + (extra != NULL))
    if result < 0:
        for i in range(count):
            segment_release(items[i])
    free(items)
    return result


cdef int unlink_first(SegmentList *list, int32_t count) noexcept nogil:
    """The oldest first, and each for good before the next: a segment that a crash brought back before a gap would be
    the log's beginning, and what lies behind the gap be taken for no part of it."""
    cdef int32_t i
    cdef int result = 0
    cdef int one
    for i in range(count):
        one = segment_sync_names(list.items[i]) if i > 0 else 0
        if one == 0:
            one = segment_unlink(list.items[i])
        result = one if one < 0 else result
    return result


cdef int unlink_from(SegmentList *list, int32_t first) noexcept nogil:
    """The last one first, each for good."""
    cdef int32_t i
    cdef int result = 0
    for i in range(list.count - 1, first - 1, -1):
        if result == 0:
            result = segment_unlink(list.items[i])
        if result == 0:
            result = segment_sync_names(list.items[i])
    return result


# --- truncation ---

cdef int find_cut(Segment *segment, int64_t *offset, int64_t *position) noexcept nogil:
    """Where the segment will end: before `offset` where that lies within a batch. One that was sealed has its indexes
    in memory afterwards, unseen by readers as yet."""
    cdef Position at
    cdef int result = segment_open_log(segment)
    if result == 0 and load32(&segment.sealed):
        result = segment_load_indexes(segment)
    if result == 0:
        result = segment_reserve(segment)
    if result == 0:
        result = segment_find(segment, offset[0], 0, segment.size, False, &at)
    position[0] = at.position if result == 0 else segment.size
    if result == 0 and at.offset < offset[0]:
        offset[0] = at.offset
    return result if result < 0 else 0


cdef int cut_memory(Log *log, int32_t keep, int64_t offset, int64_t position) noexcept nogil:
    """Under the lock: readers see the log end at `offset` before a byte of it goes."""
    cdef Segment *last = log.segments.items[keep - 1]
    cdef int result = keep_range(log, 0, keep, NULL)
    if result < 0:
        return result
    store64(&log.total_bytes, log.total_bytes - last.size + position)
    store64(&last.size, position)
    if last.synced_size > position:
        store64(&last.synced_size, position)
    store32(&last.sealed, 0)
    store32(&last.wholly_synced, 0)
    segment_cut_entries(last, offset)
    recent_clear(log)
    log.cuts += 1
    log.truncations += 1
    log.end_offset = offset
    if log.synced_offset > offset:
        log.synced_offset = offset
    if log.commit_offset > offset:
        log.commit_offset = offset
    epochs_truncate_end(log, offset)
    return 0


cdef int cut_disk(Log *log, Segment *last, int64_t offset) noexcept nogil:
    cdef int64_t largest_ms, at
    cdef int result = segment_cut_files(last)
    if result == 0:
        # Before an append takes the place of what is cut off: records that came back behind it would look like its own.
        result = last.disk.sync(last.disk.self, file_of(last))
    if result == 0:
        result = txn_index_truncate(last, offset)
    if result == 0:
        result = segment_largest_timestamp(last, &largest_ms, &at)
    if result < 0:
        return result
    mutex_lock(&log.lock)
    store64(&last.offset_of_max_timestamp, at)
    store64(&last.max_timestamp_ms, largest_ms)
    mutex_unlock(&log.lock)
    return 0


cdef int truncate_segments(Log *log, SegmentList *list, int64_t offset) noexcept nogil:
    cdef int32_t keep = list.count
    cdef int64_t position
    cdef int result
    while keep > 1 and list.items[keep - 1].base_offset > offset:
        keep -= 1
    result = find_cut(list.items[keep - 1], &offset, &position)
    if result < 0:
        return result
    mutex_lock(&log.lock)
    result = cut_memory(log, keep, offset, position)
    mutex_unlock(&log.lock)
    # The last segment goes first, so that a crash in between leaves a log that ends where one of them did; and all are
    # gone for good before the log grows again, or they would follow on other records than their own.
    if result == 0:
        result = unlink_from(list, keep)
    if result == 0:
        result = cut_disk(log, list.items[keep - 1], offset)
    return result if result < 0 else log_replay_producers(log, offset)


cdef int log_truncate_to(Log *log, int64_t offset, Waiter *blocked) noexcept nogil:
    cdef SegmentList *list
    cdef int result
    mutex_lock(&log.lock)
    if log.state == LOG_LAZY or offset >= log.end_offset:
        mutex_unlock(&log.lock)
        return 0
    if offset <= log.log_start_offset:
        mutex_unlock(&log.lock)
        return log_truncate_fully(log, offset, blocked)
    result = begin_change(log, blocked)
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    list = log_hold_segments(log)
    result = truncate_segments(log, list, offset)
    segments_release(list)
    return end_change(log, result)


cdef void empty_memory(Log *log, int64_t offset) noexcept nogil:
    """Readers find nothing from now on, and so look into no file that is about to go."""
    mutex_lock(&log.lock)
    recent_clear(log)
    producers_clear(log.producers)
    log.first_unstable_offset = -1
    log.snapshot_offset = -1
    log.cuts += 1
    log.truncations += 1
    log.log_start_offset = log.local_log_start_offset = log.end_offset = offset
    log.synced_offset = log.commit_offset = offset
    log.unflushed_since_ns = -1
    log.epoch_count = 0
    log.epochs_dirty = EPOCHS_BEHIND
    mutex_unlock(&log.lock)


cdef int start_anew(Log *log, SegmentList *list, int64_t offset) noexcept nogil:
    cdef Segment *segment = segment_new(log.dir.disk, log.path, offset)
    cdef int result
    if segment == NULL:
        return -ENOMEM
    empty_memory(log, offset)
    result = unlink_from(list, 0)
    if result == 0:
        result = segment_create(segment, log_now_ms(log), False, 0)
    if result == 0:
        mutex_lock(&log.lock)
        result = keep_range(log, 0, 0, segment)
        mutex_unlock(&log.lock)
    if result < 0:
        segment_release(segment)
    return result


cdef int log_truncate_fully(Log *log, int64_t offset, Waiter *blocked) noexcept nogil:
    cdef SegmentList *list
    cdef int result
    mutex_lock(&log.lock)
    if log.state == LOG_LAZY:
        log.log_start_offset = log.local_log_start_offset = log.end_offset = offset
        log.synced_offset = log.commit_offset = offset
        log.epoch_count = 0
        mutex_unlock(&log.lock)
        return 0
    result = begin_change(log, blocked)
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    list = log_hold_segments(log)
    result = start_anew(log, list, offset)
    segments_release(list)
    return end_change(log, result)


# --- deletion ---

cdef bint begins_with(const Log *log, const SegmentList *list, int32_t count) noexcept nogil:
    """Under the lock: the first segments are still the ones of `list`."""
    cdef int32_t i
    if log.segments == NULL or log.segments.count <= count:
        return False
    for i in range(count):
        if log.segments.items[i] != list.items[i]:
            return False
    return True


cdef int drop_first(Log *log, SegmentList *list, int32_t count) noexcept nogil:
    """The oldest segments of what the log was lately; never the active one. Appends go on meanwhile. How many, or
    -errno."""
    cdef int result = 0
    if count <= 0 or count >= list.count:
        return 0
    mutex_lock(&log.lock)
    # They may have been truncated, compacted or moved since they were looked at; and what compaction is about to put
    # in their place goes when that is over.
    if not log.swapping and begins_with(log, list, count):
        result = keep_range(log, count, log.segments.count, NULL)
        log.cuts += 1
        if result == 0 and log.log_start_offset < log.segments.items[0].base_offset:
            log.log_start_offset = log.segments.items[0].base_offset
        if result == 0:
            log.local_log_start_offset = log.log_start_offset
            epochs_truncate_start(log, log.log_start_offset)
            log_save_epochs(log)
    else:
        count = 0
    mutex_unlock(&log.lock)
    if result == 0:
        result = unlink_first(list, count)
    return result if result < 0 else count


cdef int log_advance_start(Log *log, int64_t offset) noexcept nogil:
    cdef SegmentList *list
    cdef int32_t gone = 0
    cdef int result
    mutex_lock(&log.lock)
    if log.state == LOG_FAILED or load32(&log.dir.offline):
        mutex_unlock(&log.lock)
        return KAFKA_STORAGE_ERROR
    if offset > log.end_offset:
        mutex_unlock(&log.lock)
        return OFFSET_OUT_OF_RANGE
    if offset > log.log_start_offset:
        log.log_start_offset = log.local_log_start_offset = offset
        epochs_truncate_start(log, offset)
        log_save_epochs(log)
    mutex_unlock(&log.lock)
    list = log_hold_segments(log)
    if list == NULL:
        return 0
    while gone + 1 < list.count and list.items[gone + 1].base_offset <= offset:
        gone += 1
    result = drop_first(log, list, gone)
    segments_release(list)
    if result < 0:
        log_fail(log, -result)
        return KAFKA_STORAGE_ERROR
    return 0


cdef int is_due(Log *log, Segment *segment, int64_t retention_ms, int64_t excess_bytes) noexcept nogil:
    """1 when the segment is older than may be kept, or the log can do without its bytes; -errno."""
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


cdef int count_due(Log *log, SegmentList *list, int64_t high_watermark, int64_t retention_ms,
                   int64_t retention_bytes) noexcept nogil:
    cdef int64_t excess = load64(&log.total_bytes) - retention_bytes if retention_bytes >= 0 else -1
    cdef int64_t end_offset
    cdef int32_t i
    cdef int due
    for i in range(list.count):
        end_offset = list.items[i + 1].base_offset if i + 1 < list.count else high_watermark
        if end_offset > high_watermark or (i + 1 == list.count and load64(&list.items[i].size) == 0):
            return i
        due = is_due(log, list.items[i], retention_ms, excess)
        if due <= 0:
            return due if due < 0 else i
        excess -= load64(&list.items[i].size)
    return list.count


cdef int log_delete_old(Log *log, int64_t high_watermark, Waiter *blocked) noexcept nogil:
    cdef LogDir *dir = log_dir(log)
    cdef SegmentList *list = log_hold_segments(log)
    cdef int64_t retention_ms, retention_bytes
    cdef int due
    if list == NULL:
        return 0
    mutex_lock(&log.lock)
    retention_ms = log.config.retention_ms if log.config.delete_policy else -1
    retention_bytes = log.config.retention_bytes if log.config.delete_policy else -1
    mutex_unlock(&log.lock)
    due = count_due(log, list, high_watermark, retention_ms, retention_bytes)
    if due == list.count:
        # Everything is due: an empty active segment stands in for it, so that the end offset stays on disk.
        mutex_lock(&log.lock)
        if log.state == LOG_OPEN and log.active == list.items[list.count - 1] and log.end_offset == high_watermark:
            due = log_start_roll(log, log.end_offset, blocked)
        if due != LOG_BLOCKED:
            due = list.count - 1
        mutex_unlock(&log.lock)
    if due > 0:
        due = drop_first(log, list, due)
    if due < 0 and due != LOG_BLOCKED and load32(&list.items[0].dropped):
        due = 0  # the log moved, or was truncated, and its files went while they were looked at
    segments_release(list)
    if due < 0 and due != LOG_BLOCKED:
        log_fail_in(log, dir, -due)
        return -KAFKA_STORAGE_ERROR
    return due


# --- the end ---

cdef bint log_has_jobs(const Log *log) noexcept nogil:
    return log.epochs_job_queued or log.ahead_job_queued or log.swapping


cdef int log_stop(Log *log, Waiter *blocked) noexcept nogil:
    cdef int result = 0
    mutex_lock(&log.lock)
    if log.state == LOG_OPENING or log.state == LOG_ROLLING or log_has_jobs(log):
        log_block(log, blocked)
        result = LOG_BLOCKED
    elif log.state != LOG_FAILED:
        log.state = LOG_CLOSED
    mutex_unlock(&log.lock)
    if result == 0:
        log_wake_blocked(log, WAKE_GONE)
    return result


cdef int log_shut(Log *log, Waiter *blocked) noexcept nogil:
    cdef SegmentList *list
    cdef int64_t next_base
    cdef int32_t i
    cdef int result
    mutex_lock(&log.lock)
    if log.state == LOG_LAZY or log.state == LOG_CLOSED or log.state == LOG_FAILED:
        if log.state == LOG_LAZY:
            log.state = LOG_CLOSED
        mutex_unlock(&log.lock)
        return 0
    result = LOG_BLOCKED if log_has_jobs(log) else begin_change(log, blocked)
    if result == LOG_BLOCKED:
        log_block(log, blocked)
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    if log_epochs_wanted(log):
        result = write_epochs(log, log.path, True)
    list = log_hold_segments(log)
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
