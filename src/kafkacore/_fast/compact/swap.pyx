"""Implements swap.pxd: replaces segments by their compacted segment."""

from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from kafkacore._fast.base.atomics cimport load32, store32, store64
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.wait.io cimport LogDir
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_OPEN, log_block, log_fail_in, log_set_segments, log_wake_blocked,
    log_wake_changed,
)
from kafkacore._fast.log.delete cimport log_advance_start
from kafkacore._fast.wait.park cimport WAKE_READY
from kafkacore._fast.log.segment cimport (
    SEGMENT_REPLACED, segment_hold, segment_open_log, segment_open_part, segment_release, segment_sync_names,
    segment_unlink_files,
)
from kafkacore._fast.log.segment_index cimport segment_open_indexes
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

cdef extern from "<errno.h>" nogil:
    int ECANCELED

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_RDWR, O_TRUNC, O_CLOEXEC

cdef enum:
    NAME_ROOM = 32
    PARTS = 4

cdef const char *part_name(int part) noexcept nogil:
    """Returns the suffix of one of the segment's files. The .log file is the first one, so it loses the suffix `.swap`
    before the indexes do. If a crash left an index under its final name beside a .log.swap, the node would remove this
    index at its next start, together with the indexes of the former segment."""
    if part == 0:
        return b".log"
    if part == 1:
        return b".index"
    return b".timeindex" if part == 2 else b".txnindex"


# --- files ---

cdef int open_cleaned(Segment *fresh, const char *suffix) noexcept nogil:
    return segment_open_part(fresh, suffix, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC)


cdef int swap_create(Segment *fresh) noexcept nogil:
    cdef int file = open_cleaned(fresh, b".log.cleaned")
    if file < 0:
        return file
    fresh.file = file
    file = open_cleaned(fresh, b".index.cleaned")
    if file < 0:
        return file
    fresh.offset_index_file = file
    file = open_cleaned(fresh, b".timeindex.cleaned")
    if file < 0:
        return file
    fresh.time_index_file = file
    return 0


cdef int write_aborted(Segment *fresh) noexcept nogil:
    cdef const Disk *disk = fresh.disk
    cdef int64_t result
    cdef int file
    if fresh.aborted_bytes == 0:
        return 0
    file = open_cleaned(fresh, b".txnindex.cleaned")
    if file < 0:
        return file
    result = disk.pwrite(disk.self, file, fresh.aborted, <size_t> fresh.aborted_bytes, 0)
    if result >= 0:
        result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return <int> result if result < 0 else 0


cdef int swap_sync(Segment *fresh) noexcept nogil:
    cdef const Disk *disk = fresh.disk
    cdef int result = write_aborted(fresh)
    if result == 0:
        result = disk.sync(disk.self, fresh.offset_index_file)
    if result == 0:
        result = disk.sync(disk.self, fresh.time_index_file)
    if result == 0:
        result = disk.sync(disk.self, fresh.file)
    # All names are synced before one of them becomes .swap. Otherwise the node could use a .log.swap without its
    # transaction index after a crash.
    return result if result < 0 else segment_sync_names(fresh)


cdef char *part_path(const Segment *segment, int part, const char *suffix) noexcept nogil:
    cdef size_t room = strlen(segment.path) + NAME_ROOM
    cdef char *path = <char *> malloc(room)
    if path != NULL:
        snprintf(path, room, b"%s%s%s", segment.path, part_name(part), suffix)
    return path


cdef int unlink_part(const Segment *segment, int part, const char *suffix) noexcept nogil:
    cdef char *path = part_path(segment, part, suffix)
    cdef int result = -ENOMEM
    if path != NULL:
        result = segment.disk.unlink(segment.disk.self, path)
        free(path)
    return 0 if result == -ENOENT else result


cdef void swap_discard(Segment *fresh) noexcept nogil:
    # If a file cannot be removed now, the node removes it at its next start.
    cdef int part
    for part in range(PARTS):
        unlink_part(fresh, part, b".cleaned")


cdef int rename_part(const Segment *fresh, int part, const char *before, const char *after) noexcept nogil:
    cdef char *old_path = part_path(fresh, part, before)
    cdef char *new_path = part_path(fresh, part, after)
    cdef int result = -ENOMEM
    if old_path != NULL and new_path != NULL:
        result = fresh.disk.rename(fresh.disk.self, old_path, new_path)
    free(old_path)
    free(new_path)
    return result


cdef int rename_parts(const Segment *fresh, int first, const char *before, const char *after) noexcept nogil:
    cdef int parts = PARTS if fresh.aborted_bytes > 0 else PARTS - 1
    cdef int part
    cdef int result = 0
    for part in range(first, parts):
        if result == 0:
            result = rename_part(fresh, part, before, after)
    return result


# --- the list; under the lock ---

cdef int32_t place_of(const Swap *swap) noexcept nogil:
    """Returns the index of the first former segment in the log's list. Returns -1 if a former segment is missing or is
    the active segment."""
    cdef const Log *log = swap.log
    cdef int32_t first = 0
    cdef int32_t i
    if log.segments == NULL or log.truncations != swap.truncations:
        return -1
    while first < log.segments.count and log.segments.items[first] != swap.former[0]:
        first += 1
    if first + swap.count >= log.segments.count:
        return -1  # the last segment of the list is the active segment
    for i in range(swap.count):
        if log.segments.items[first + i] != swap.former[i]:
            return -1
    return first


cdef int begin_swap(const Swap *swap, Waiter *blocked) noexcept nogil:
    cdef Log *log = swap.log
    if log.state == LOG_FAILED or log.state == LOG_CLOSED or load32(&log.dir.offline) or place_of(swap) < 0:
        return -ECANCELED
    if log.state != LOG_OPEN or log.swapping:
        log_block(log, blocked)  # the log rolls, is being truncated, or is about to be stopped or moved
        return LOG_BLOCKED
    log.swapping = True
    return 0


cdef int exchange(const Swap *swap) noexcept nogil:
    cdef Log *log = swap.log
    cdef int32_t first = place_of(swap)
    cdef int32_t count = log.segments.count - swap.count + 1
    cdef int32_t i, from_list
    cdef int result
    cdef Segment **items = <Segment **> malloc(count * sizeof(Segment *))
    if items == NULL:
        return -ENOMEM
    for i in range(count):
        from_list = i if i < first else i + swap.count - 1
        items[i] = swap.fresh if i == first else log.segments.items[from_list]
        segment_hold(items[i])
    result = log_set_segments(log, items, count)
    if result < 0:
        for i in range(count):
            segment_release(items[i])
    free(items)
    if result == 0:
        log.cuts += 1
    return result


# --- the whole swap ---

cdef int drop_former(const Swap *swap) noexcept nogil:
    """Removes the files of the former segments. The new segment takes over the file names of the first one. It also
    keeps the producer snapshot of the first one, because both segments begin at the same offset."""
    cdef int32_t i
    cdef int result = 0
    for i in range(swap.count):
        store32(&swap.former[i].dropped, SEGMENT_REPLACED)
    for i in range(1, swap.count):
        # At a start, the node removes the .log files that begin below the new segment's end. Later .log files must be
        # removed in order. Otherwise a crash could lose a tombstone and keep an earlier record that the tombstone
        # deletes.
        if result == 0 and i > 1 and swap.former[i].base_offset >= swap.end_offset:
            result = segment_sync_names(swap.fresh)
        if result == 0:
            result = unlink_part(swap.former[i], 0, b"")
    # After a crash, records beyond the new segment's end may exist again, and then they need their transaction index.
    # So the removal of the .log files is synced before the indexes are removed.
    if result == 0 and swap.count > 1:
        result = segment_sync_names(swap.fresh)
    for i in range(1, swap.count):
        if result == 0:
            result = segment_unlink_files(swap.former[i])
    if result == 0:
        result = unlink_part(swap.fresh, PARTS - 1, b"")
    return result


cdef void inherit(const Swap *swap) noexcept nogil:
    cdef Segment *fresh = swap.fresh
    cdef Segment *last = swap.former[swap.count - 1]
    cdef int32_t i
    cdef bint whole = True
    for i in range(swap.count):
        whole = whole and load32(&swap.former[i].wholly_synced) != 0
    fresh.created_ms = last.created_ms
    fresh.modified_ms = last.modified_ms
    fresh.entry_synced = True
    store64(&fresh.synced_size, fresh.size)
    # If a former segment was not wholly synced, its producer snapshot may not be on the disk. In that case the next
    # commit syncs the snapshot.
    store32(&fresh.wholly_synced, whole)


cdef int change_files(const Swap *swap) noexcept nogil:
    cdef Log *log = swap.log
    cdef Segment *fresh = swap.fresh
    cdef int result = rename_parts(fresh, 0, b".cleaned", b".swap")
    if result == 0:
        result = segment_sync_names(fresh)
    if result == 0:
        inherit(swap)
        mutex_lock(&log.lock)
        result = exchange(swap)
        mutex_unlock(&log.lock)
    if result == 0:
        result = drop_former(swap)
    if result == 0:
        result = segment_sync_names(fresh)
    if result == 0:
        result = rename_part(fresh, 0, b".swap", b"")
    if result == 0:
        result = segment_sync_names(fresh)
    if result == 0:
        result = rename_parts(fresh, 1, b".swap", b"")
    return result if result < 0 else segment_sync_names(fresh)


cdef int open_former(const Swap *swap) noexcept nogil:
    """Opens the files of the former segments now, because the new segment's files get the names of the first one.
    Otherwise a reader of a former segment could open the new files."""
    cdef int32_t i
    cdef int result = 0
    for i in range(swap.count):
        if result == 0:
            result = segment_open_log(swap.former[i])
        if result == 0:
            result = segment_open_indexes(swap.former[i])
    return result


cdef int swap_in(Swap *swap, Waiter *blocked) noexcept nogil:
    cdef Log *log = swap.log
    cdef LogDir *dir
    cdef int64_t log_start_offset
    cdef int result = open_former(swap)
    if result < 0:
        return result
    mutex_lock(&log.lock)
    result = begin_swap(swap, blocked)
    dir = log.dir
    mutex_unlock(&log.lock)
    if result != 0:
        return result
    result = change_files(swap)
    mutex_lock(&log.lock)
    log.swapping = False
    log_start_offset = log.log_start_offset
    mutex_unlock(&log.lock)
    if result < 0:
        log_fail_in(log, dir, -result)
        return result
    log_wake_blocked(log, WAKE_READY)
    log_wake_changed(log, WAKE_READY)
    log_advance_start(log, log_start_offset)  # deletes the segments whose deletion was requested during the swap
    return 0
