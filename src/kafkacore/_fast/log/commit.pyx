"""Implements commit.pxd: the group commit."""

from libc.errno cimport ENOENT, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from kafkacore._fast.base.atomics cimport add32, load32, load64, store32, store64
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.jobs cimport FILES_ROUNDS, wait_for_files
from kafkacore._fast.log.log cimport SegmentList, log_dir, log_fail_in, log_wake_changed, segments_release
from kafkacore._fast.log.segment cimport segment_sync
from kafkacore._fast.wait.io cimport Dirty, LogDir, io_dirty
from kafkacore._fast.wait.park cimport WAKE_READY, WakeList, wake_all
from kafkacore._fast.world.environment cimport Disk

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR, O_CLOEXEC

cdef enum:
    OFFSET_DIGITS = 20


cdef Log *log_of_dirty(Dirty *dirty) noexcept nogil:
    return <Log *> (<char *> dirty - <size_t> &(<Log *> NULL).dirty)


cdef void log_commit_init(Log *log) noexcept nogil:
    log.dirty.commit = run_commit
    log.dirty.idle = end_commit


cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil:
    mutex_lock(&log.lock)
    log_want_synced(log, offset)
    mutex_unlock(&log.lock)
    log_call_committer(log)


cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil:
    # The log may have been truncated below `offset` since the caller read the log's end. The request does not cover
    # records that are appended at the removed offsets afterwards.
    if offset > log.end_offset:
        offset = log.end_offset
    if log.commit_offset < offset:
        log.commit_offset = offset


cdef int64_t log_recovery_point(const Log *log) noexcept nogil:
    cdef int64_t point = log.synced_offset
    cdef int32_t i
    if is_planted(b"recovery-point-ahead"):
        return max(log.end_offset, log.log_start_offset)
    if log.segments == NULL:
        return point
    # Checks all segments, because a load may have rebuilt any segment whose index was missing.
    for i in range(log.segments.count - 1):
        if log.segments.items[i].base_offset >= point:
            break
        if not load32(&log.segments.items[i].wholly_synced):
            point = log.segments.items[i].base_offset
            break
    return point if point > log.log_start_offset else log.log_start_offset


cdef void log_call_committer(Log *log) noexcept nogil:
    log.hold(log)
    if not io_dirty(log_dir(log), &log.dirty):
        log.release(log)


cdef void end_commit(Dirty *dirty) noexcept nogil:
    cdef Log *log = log_of_dirty(dirty)
    log.release(log)


cdef char *path_beside(const Segment *segment, int64_t offset, const char *suffix) noexcept nogil:
    """Returns the malloc'ed path of the file for `offset` in the segment's directory. (`log.path` may name another
    directory, because the log may have moved since the caller chose the segment.)"""
    cdef size_t length = strlen(segment.path)
    cdef char *path = <char *> malloc(length + 16)
    if path != NULL:
        snprintf(path, length + 16, b"%.*s%020lld%s", <int> (length - OFFSET_DIGITS), segment.path, <long long> offset,
                 suffix)
    return path


cdef int sync_snapshot(Segment *segment, int64_t offset) noexcept nogil:
    """Syncs the producer snapshot that was taken when the segment at `offset` began."""
    cdef const Disk *disk = segment.disk
    cdef char *path = path_beside(segment, offset, b".snapshot")
    cdef int file, result
    if path == NULL:
        return -ENOMEM
    file = disk.open(disk.self, path, O_RDWR | O_CLOEXEC, 0)
    free(path)
    if file < 0:
        return 0 if file == -ENOENT else file
    result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return result


cdef int log_sync_segment(Log *log, Segment *segment, int64_t next_base, int64_t cuts) noexcept nogil:
    """Syncs one segment, and records its synced size. (For the last segment, `commit_round` records it.) A segment that
    was dropped needs no sync, so errors in its files are ignored."""
    cdef int64_t size = load64(&segment.size)
    cdef int result = segment_sync(segment, load32(&segment.sealed) != 0)
    if result == 0 and next_base >= 0:
        result = sync_snapshot(segment, next_base)
    if result < 0:
        return 0 if load32(&segment.dropped) else result
    if next_base >= 0:
        mutex_lock(&log.lock)
        note_synced_size(log, segment, size, cuts)
        if log.cuts == cuts:
            store32(&segment.wholly_synced, 1)
        mutex_unlock(&log.lock)
    return 0


cdef void note_synced_size(Log *log, Segment *segment, int64_t size, int64_t cuts) noexcept nogil:
    if log.cuts == cuts and segment.synced_size < size:
        store64(&segment.synced_size, size)


cdef int sync_directory_of(Segment *segment) noexcept nogil:
    cdef char *path = path_beside(segment, 0, b"")
    cdef int result = -ENOMEM
    if path != NULL:
        path[strlen(path) - OFFSET_DIGITS - 1] = 0
        result = segment.disk.sync_directory(segment.disk.self, path)
        free(path)
    return 0 if load32(&segment.dropped) else result


cdef int sync_names(SegmentList *list) noexcept nogil:
    cdef int32_t i
    cdef int result = 0
    for i in range(list.count):
        if not list.items[i].entry_synced:
            result = sync_directory_of(list.items[i])
            break
    if result == 0:
        for i in range(list.count):
            list.items[i].entry_synced = True
    return result


cdef int sync_up_to(Log *log, SegmentList *list, int64_t synced_offset, int64_t until, int64_t cuts) noexcept nogil:
    """Syncs every segment that has bytes between `synced_offset` and `until`, and the names of new segments. Also syncs
    each segment that was sealed after its bytes were synced, because its indexes and its producer snapshot may not be
    on the disk."""
    cdef int64_t next_base
    cdef int32_t i
    cdef int result
    if is_planted(b"lost-sync"):
        return 0
    for i in range(list.count):
        next_base = list.items[i + 1].base_offset if i + 1 < list.count else -1
        if list.items[i].base_offset >= until or (
                0 <= next_base <= synced_offset and load32(&list.items[i].wholly_synced)):
            continue
        result = log_sync_segment(log, list.items[i], next_base, cuts)
        if result < 0:
            return result
    return sync_names(list)


cdef int run_commit(Dirty *dirty) noexcept nogil:
    cdef Log *log = log_of_dirty(dirty)
    cdef int rounds_left = FILES_ROUNDS
    cdef bint is_done = False
    # After a truncation or a deletion, it is unknown which offsets the sync covered, and an append may be waiting for
    # one of these offsets. So another round follows.
    while not is_done:
        is_done = commit_round(log, &rounds_left)
    return 0


cdef bint commit_round(Log *log, int *rounds_left) noexcept nogil:
    """Performs one round of the group commit. Returns False if another round must follow: either no file descriptor was
    free, or segments were removed during this round, so that the sync proves nothing. Takes the lock twice, each time
    only briefly, because appends constantly need the lock."""
    cdef SegmentList *list
    cdef LogDir *dir
    cdef Segment *last = NULL
    cdef WakeList wakes
    cdef bint is_proved, more
    cdef int64_t until, synced_offset, cuts
    cdef int64_t last_size = 0
    cdef int result
    mutex_lock(&log.lock)
    until = log.commit_offset
    synced_offset = log.synced_offset
    cuts = log.cuts
    dir = log.dir
    list = log.segments
    if list != NULL:
        add32(&list.refs, 1)
    if log.active != NULL and until > log.active.base_offset:
        # A sync covers the whole active segment.
        last = log.active
        last_size = last.size
        until = log.end_offset
    mutex_unlock(&log.lock)
    if list == NULL or load32(&dir.offline):
        segments_release(list)
        if load32(&dir.offline):
            # The directory failed because of another file. The waiters of this log must be woken too.
            log_fail_in(log, dir, load32(&dir.offline))
        return True
    result = sync_up_to(log, list, synced_offset, until, cuts)
    if result < 0:
        segments_release(list)
        if wait_for_files(result, rounds_left):
            return False
        log_fail_in(log, dir, -result)
        return True
    wakes.count = 0
    wakes.why = WAKE_READY
    mutex_lock(&log.lock)
    # If the log was truncated during the sync, other records may have been appended at the same offsets, and the sync
    # does not cover these.
    is_proved = log.cuts == cuts
    if is_proved and log.synced_offset < until:
        log.synced_offset = until
    if last != NULL:
        note_synced_size(log, last, last_size, cuts)
    if log.synced_offset == log.end_offset:
        log.unflushed_since_ns = -1
    more = log.on_change != NULL and log.on_change(log, &wakes)
    mutex_unlock(&log.lock)
    segments_release(list)
    wake_all(&wakes)
    if more:
        log_wake_changed(log, WAKE_READY)
    return is_proved
