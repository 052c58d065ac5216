"""Implements truncate.pxd: truncates a log (UnifiedLog.truncateTo, truncateFullyAndStartAt)."""

from libc.errno cimport EINVAL, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR
from kafkacore._fast.base.atomics cimport add32, load32, load_ptr, store32, store64
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.commit cimport log_recovery_point
from kafkacore._fast.log.epochs cimport epochs_truncate_end
from kafkacore._fast.log.epochs_checkpoint cimport log_save_epochs
from kafkacore._fast.log.jobs cimport FILES_ROUNDS, wait_for_files
from kafkacore._fast.log.log cimport (
    EPOCHS_BEHIND, LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_LAZY, LOG_OPEN, LOG_OPENING, LOG_ROLLING, SegmentList,
    log_block, log_fail, log_hold_segments, log_now_ms, log_set_segments, log_wake_blocked, log_wake_changed,
    recent_clear, segments_release,
)
from kafkacore._fast.log.open cimport log_open_now
from kafkacore._fast.log.producer_replay cimport drop_snapshot, log_replay_producers
from kafkacore._fast.log.producers cimport producers_clear
from kafkacore._fast.log.segment cimport (
    file_of, segment_create, segment_hold, segment_new, segment_open_log, segment_release, segment_sync_names,
    segment_unlink,
)
from kafkacore._fast.log.segment_find cimport Position, segment_find, segment_largest_timestamp
from kafkacore._fast.log.segment_index cimport (
    segment_cut_entries, segment_cut_files, segment_load_indexes, segment_note_greatest, segment_reserve,
)
from kafkacore._fast.log.txn_index cimport txn_index_truncate
from kafkacore._fast.wait.mail cimport Inbox, Mail, inbox_post
from kafkacore._fast.wait.park cimport WAKE_READY, WakeList, wake_all


# --- exclusive use of the log ---

cdef int log_begin_change(Log *log, Waiter *blocked) noexcept nogil:
    if log.state == LOG_FAILED or log.state == LOG_CLOSED or load32(&log.dir.offline):
        return KAFKA_STORAGE_ERROR
    if log.state != LOG_OPEN or log.swapping:
        log_block(log, blocked)
        return LOG_BLOCKED
    log.state = LOG_ROLLING
    return 0


cdef int log_end_change(Log *log, int result) noexcept nogil:
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
    return result


cdef int log_keep_segments(Log *log, int32_t first, int32_t end, Segment *extra) noexcept nogil:
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


# --- the recovery point ---

cdef Log *log_of_mail(Mail *mail) noexcept nogil:
    return <Log *> (<char *> mail - <size_t> &(<Log *> NULL).cut_mail)


cdef void deliver_cut(Mail *mail) noexcept nogil:
    cdef Log *log = log_of_mail(mail)
    log.next_cut = <Log *> log.dir.first_cut
    log.dir.first_cut = log


cdef int end_cut(Log *log, int result) noexcept nogil:
    """Ends the change, or leaves that to the thread that writes checkpoints. The checkpoint files may have a recovery
    point or a log start offset above the log's new end. If the log grew again before the files got lower values, a node
    that starts after a power loss would trust records that were never synced, or would remove the records below that
    start offset."""
    cdef Inbox *writer = <Inbox *> load_ptr(<void *const *> &log.dir.cuts)
    cdef bint waits
    mutex_lock(&log.lock)
    log.swapping = False
    mutex_unlock(&log.lock)
    if result != 0 or writer == NULL:
        return log_end_change(log, result)
    mutex_lock(&log.lock)
    waits = log.state == LOG_ROLLING and log.checkpointed_offset > log.end_offset
    log.awaits_checkpoint = waits
    if waits:
        log.hold(log)  # for the other thread, which may release its reference as soon as this thread unlocks the log
        log.hold(log)  # for this thread
        log.cut_mail.deliver = deliver_cut
        inbox_post(writer, &log.cut_mail)
    mutex_unlock(&log.lock)
    if not waits:
        return log_end_change(log, result)
    # A deletion of the log waits for the truncation, but not for the checkpoint. So wake it now.
    log_wake_blocked(log, WAKE_READY)
    log.release(log)
    return 0


cdef void log_checkpointed(Log *log) noexcept nogil:
    mutex_lock(&log.lock)
    log.awaits_checkpoint = False
    log.checkpointed_offset = max(log_recovery_point(log), log.log_start_offset)
    mutex_unlock(&log.lock)
    log_end_change(log, 0)
    log.release(log)


# --- truncation ---

cdef int begin_cut(Log *log, Waiter *blocked) noexcept nogil:
    """Begins a change during which no other thread drops segments. This is necessary because a truncation counts
    segments, reads their files, and can create a file with the name of a dropped segment. Call this with the lock
    held."""
    cdef int result
    if log.dropping:
        log_block(log, blocked)
        return LOG_BLOCKED
    result = log_begin_change(log, blocked)
    log.swapping |= result == 0
    return result


cdef void unlock_moved(Log *log) noexcept nogil:
    """Releases the lock after the log end has changed. Moves the high watermark first, so that no other thread sees it
    above the new end."""
    cdef WakeList wakes
    cdef bint more
    wakes.count = 0
    wakes.why = WAKE_READY
    more = log.on_change != NULL and log.on_change(log, &wakes)
    mutex_unlock(&log.lock)
    wake_all(&wakes)
    if more:
        log_wake_changed(log, WAKE_READY)


cdef int unlink_from(SegmentList *list, int32_t first) noexcept nogil:
    """Unlinks the segments from the last one down to `first`. A sync makes each removal durable before the next one."""
    cdef int32_t i
    cdef int result = 0
    for i in range(list.count - 1, first - 1, -1):
        if result == 0:
            result = segment_unlink(list.items[i])
        if result == 0:
            result = segment_sync_names(list.items[i])
    return result


cdef int find_cut(Segment *segment, int64_t *offset, int64_t *position) noexcept nogil:
    """Sets `position` to the byte at which the segment must end. This is the start of the batch that contains `offset`.
    Lowers `offset` to the base offset of that batch. After this, a sealed segment has its indexes in memory, but
    readers do not use them yet."""
    cdef Position at
    cdef int result = segment_open_log(segment)
    if result == 0 and load32(&segment.sealed):
        result = segment_load_indexes(segment)
        if result == -EINVAL:
            result = 0  # a damaged index has no entries in memory, and the truncation empties its file
    if result == 0:
        result = segment_reserve(segment)
    if result == 0:
        result = segment_find(segment, offset[0], 0, segment.size, False, &at)
    position[0] = at.position if result == 0 else segment.size
    if result == 0 and at.offset < offset[0]:
        offset[0] = at.offset
    return result if result < 0 else 0


cdef inline int fenced(Log *log, const Fence *fence) noexcept nogil:
    return fence.may(log, fence.epoch) if fence != NULL else 0


cdef void note_cut(Log *log, int32_t first) noexcept nogil:
    """Marks the bytes of the segments from `first` on as changed. From now on, no response contains bytes that were
    read from these segments earlier. Call this with the lock held."""
    cdef int32_t i
    if log.segments != NULL:
        for i in range(first, log.segments.count):
            add32(&log.segments.items[i].cuts, 1)


cdef int cut_memory(Log *log, int32_t keep, int64_t offset, int64_t position, const Fence *fence) noexcept nogil:
    """Truncates the log in memory. Call this with the lock held. Readers see that the log ends at `offset` before any
    byte is removed."""
    cdef Segment *last = log.segments.items[keep - 1]
    cdef int result = fenced(log, fence)
    if result == 0:
        note_cut(log, keep - 1)
        result = log_keep_segments(log, 0, keep, NULL)
    if result != 0:
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
    log.rewinds += 1
    log.end_offset = offset
    if log.log_start_offset > offset:
        # A DeleteRecords had moved the log start to an offset inside the batch that is being truncated.
        log.log_start_offset = log.local_log_start_offset = offset
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
        # The truncation is synced before an append replaces the removed records. Otherwise, after a power loss, the old
        # records could come back after the new ones and look valid.
        result = last.disk.sync(last.disk.self, file_of(last))
    if result == 0:
        result = txn_index_truncate(last, offset)
    if result == 0:
        result = segment_largest_timestamp(last, &largest_ms, &at)
    if result < 0:
        return result
    mutex_lock(&log.lock)
    segment_note_greatest(last, largest_ms, at)
    mutex_unlock(&log.lock)
    return 0


cdef int drop_from_disk(Log *log, SegmentList *list, int32_t keep, int64_t offset) noexcept nogil:
    cdef int result
    # The last segment is removed first, so that a crash during the removals leaves a log that ends where a segment
    # ended. All removals are durable before the log grows again. Otherwise the removed segments could come back after
    # records to which they do not belong.
    result = unlink_from(list, keep)
    if result == 0:
        result = cut_disk(log, list.items[keep - 1], offset)
    if result < 0 or is_planted(b"producers-past-a-truncation"):
        return result
    return log_replay_producers(log, offset)


cdef int truncate_segments(Log *log, SegmentList *list, int64_t offset, const Fence *fence) noexcept nogil:
    cdef int32_t keep = list.count
    cdef int rounds_left = FILES_ROUNDS
    cdef int64_t position
    cdef int result
    while keep > 1 and list.items[keep - 1].base_offset > offset:
        keep -= 1
    while True:
        result = find_cut(list.items[keep - 1], &offset, &position)
        if not wait_for_files(result, &rounds_left):
            break
    if result < 0:
        return result
    mutex_lock(&log.lock)
    result = cut_memory(log, keep, offset, position, fence)
    unlock_moved(log)
    if result != 0:
        return result
    while True:
        result = drop_from_disk(log, list, keep, offset)
        if not wait_for_files(result, &rounds_left):
            return result


cdef int log_truncate_to(Log *log, int64_t offset, const Fence *fence, Waiter *blocked) noexcept nogil:
    cdef SegmentList *list
    cdef int result
    mutex_lock(&log.lock)
    result = fenced(log, fence)
    if result != 0 or offset >= log.end_offset:
        if result == 0 and fence != NULL:
            # This also removes an epoch in which this replica led but appended nothing. Otherwise this log would
            # diverge forever.
            epochs_truncate_end(log, log.end_offset)
            log_save_epochs(log)
        mutex_unlock(&log.lock)
        return result
    if offset <= log.log_start_offset:
        mutex_unlock(&log.lock)
        return log_truncate_fully(log, offset, fence, blocked)
    result = begin_cut(log, blocked)
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    list = log_hold_segments(log)
    result = truncate_segments(log, list, offset, fence)
    segments_release(list)
    return end_cut(log, result)


cdef void empty_memory(Log *log, int64_t offset) noexcept nogil:
    """Makes the log empty in memory. From now on, readers find no records, and so they open no file that is about to be
    removed. Call this with the lock held."""
    note_cut(log, 0)
    recent_clear(log)
    if log.producers != NULL and not is_planted(b"producers-kept-when-begun-anew"):
        producers_clear(log.producers)
    log.first_unstable_offset = -1
    log.snapshot_offset = -1
    log.cuts += 1
    log.truncations += 1
    log.rewinds += 1
    log.log_start_offset = log.local_log_start_offset = log.end_offset = offset
    log.synced_offset = log.commit_offset = offset
    log.unflushed_since_ns = -1
    if is_planted(b"epochs-kept-when-begun-anew"):
        epochs_truncate_end(log, offset)
    else:
        log.epoch_count = 0
    log.epochs_dirty = EPOCHS_BEHIND


cdef int start_anew(Log *log, SegmentList *list, int64_t offset, const Fence *fence) noexcept nogil:
    cdef Segment *segment = segment_new(log.dir.disk, log.path, offset)
    cdef int64_t snapshot_offset = log.snapshot_offset
    cdef int rounds_left = FILES_ROUNDS
    cdef int result
    if segment == NULL:
        return -ENOMEM
    mutex_lock(&log.lock)
    result = fenced(log, fence)
    if result == 0:
        empty_memory(log, offset)
    unlock_moved(log)
    if result != 0:
        segment_release(segment)
        return result
    while True:
        result = unlink_from(list, 0)
        if result == 0 and snapshot_offset >= 0:
            # The producer snapshot of an orderly stop does not belong to a segment.
            result = drop_snapshot(log.dir.disk, log.path, snapshot_offset)
        if result == 0:
            result = segment_create(segment, log_now_ms(log), False, 0)
        if not wait_for_files(result, &rounds_left):
            break
    if result == 0:
        mutex_lock(&log.lock)
        result = log_keep_segments(log, 0, 0, segment)
        mutex_unlock(&log.lock)
    if result < 0:
        segment_release(segment)
    return result


cdef int log_truncate_fully(Log *log, int64_t offset, const Fence *fence, Waiter *blocked) noexcept nogil:
    cdef SegmentList *list
    cdef int result
    mutex_lock(&log.lock)
    result = fenced(log, fence)
    if result == 0 and log.state == LOG_LAZY and not load32(&log.dir.offline):
        log.state = LOG_OPENING
        empty_memory(log, offset)
        unlock_moved(log)
        return end_cut(log, log_open_now(log))
    if result == 0:
        result = begin_cut(log, blocked)
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    list = log_hold_segments(log)
    result = start_anew(log, list, offset, fence)
    segments_release(list)
    return end_cut(log, result)
