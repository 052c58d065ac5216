"""Implements segment.pxd: the life cycle and the files of a segment (LogSegment)."""

from libc.errno cimport EEXIST, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strdup, strlen, strrchr

from kafkacore._fast.base.atomics cimport add32, cas32, load32, store32, store64

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_CLOEXEC

cdef enum:
    SUFFIX_ROOM = 24          # room for the longest suffix, ".timeindex.cleaned"

cdef int32_t live_segments = 0  # atomic; tests check that it returns to zero


cdef void segment_hold(Segment *segment) noexcept nogil:
    add32(&segment.refs, 1)


cdef void close_file(const Disk *disk, int32_t *file) noexcept nogil:
    if file[0] >= 0:
        disk.close(disk.self, file[0])
        file[0] = -1


cdef void segment_close(Segment *segment) noexcept nogil:
    close_file(segment.disk, &segment.file)
    close_file(segment.disk, &segment.offset_index_file)
    close_file(segment.disk, &segment.time_index_file)


cdef void segment_release(Segment *segment) noexcept nogil:
    if segment == NULL or add32(&segment.refs, -1) != 0:
        return
    segment_close(segment)
    free(segment.offset_index)
    free(segment.time_index)
    free(segment.aborted)
    free(segment.path)
    free(segment)
    add32(&live_segments, -1)


cdef Segment *segment_new(const Disk *disk, const char *directory, int64_t base_offset) noexcept nogil:
    cdef size_t room = strlen(directory) + 22
    cdef Segment *segment = <Segment *> calloc(1, sizeof(Segment))
    if segment == NULL:
        return NULL
    segment.path = <char *> malloc(room)
    if segment.path == NULL:
        free(segment)
        return NULL
    snprintf(segment.path, room, b"%s/%020lld", directory, <long long> base_offset)
    segment.refs = 1
    segment.disk = disk
    segment.file = segment.offset_index_file = segment.time_index_file = -1
    segment.base_offset = base_offset
    segment.max_timestamp_ms = -1
    segment.offset_of_max_timestamp = base_offset
    segment.first_timestamp_ms = -1
    add32(&live_segments, 1)
    return segment


cdef int segment_open_part(Segment *segment, const char *suffix, int flags) noexcept nogil:
    """Opens a file of the segment. Returns a file handle, or -errno."""
    cdef size_t room = strlen(segment.path) + SUFFIX_ROOM
    cdef char *name = <char *> malloc(room)
    cdef int result
    if name == NULL:
        return -ENOMEM
    snprintf(name, room, b"%s%s", segment.path, suffix)
    result = segment.disk.open(segment.disk.self, name, flags, 0o644)
    free(name)
    return result


cdef int segment_keep_file(Segment *segment, int32_t *file, int handle) noexcept nogil:
    """Keeps only one handle if several readers open the file at the same time."""
    if handle < 0:
        return handle
    if not cas32(file, -1, handle):
        segment.disk.close(segment.disk.self, handle)
    return 0


cdef int open_once(Segment *segment, int32_t *file, const char *suffix, int flags) noexcept nogil:
    return 0 if load32(file) >= 0 else segment_keep_file(segment, file, segment_open_part(segment, suffix, flags))


cdef int segment_open_log(Segment *segment) noexcept nogil:
    return open_once(segment, &segment.file, b".log", O_RDWR | O_CLOEXEC)


cdef int open_new_log(Segment *segment, int flags) noexcept nogil:
    """Opens a new .log. If the file exists and is empty, an earlier attempt created it and then found no free file
    descriptor. If the file has bytes, it contains records, and the result is -EEXIST."""
    cdef int result = open_once(segment, &segment.file, b".log", flags | O_EXCL)
    if result != -EEXIST:
        return result
    result = open_once(segment, &segment.file, b".log", flags)
    if result == 0 and segment.disk.size(segment.disk.self, file_of(segment)) != 0:
        close_file(segment.disk, &segment.file)
        result = -EEXIST
    return result


cdef int segment_create(Segment *segment, int64_t now_ms, bint first, int64_t preallocated_bytes) noexcept nogil:
    cdef int flags = O_RDWR | O_CREAT | O_CLOEXEC
    cdef int result
    if first:
        result = open_new_log(segment, flags)
    else:
        # A crash during a roll may have left this file.
        result = open_once(segment, &segment.file, b".log", flags | O_TRUNC)
    if result == 0:
        result = open_once(segment, &segment.offset_index_file, b".index", flags | O_TRUNC)
    if result == 0:
        result = open_once(segment, &segment.time_index_file, b".timeindex", flags | O_TRUNC)
    if result == 0 and preallocated_bytes > 0:
        result = segment.disk.truncate(segment.disk.self, file_of(segment), preallocated_bytes)
        segment.preallocated = True
    # A log with few appends keeps only one file open. It opens the indexes again when there are entries to write.
    close_file(segment.disk, &segment.offset_index_file)
    close_file(segment.disk, &segment.time_index_file)
    segment.created_ms = segment.modified_ms = now_ms
    return result


cdef void segment_discard(Segment *segment) noexcept nogil:
    segment_unlink_part(segment, b".log")
    segment_unlink_part(segment, b".index")
    segment_unlink_part(segment, b".timeindex")


cdef int segment_truncate(Segment *segment, int64_t size) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = disk.truncate(disk.self, file_of(segment), size)
    if result < 0:
        return result
    store64(&segment.size, size)
    if segment.synced_size > size:
        segment.synced_size = size
    return 0


cdef int segment_unlink_part(Segment *segment, const char *suffix) noexcept nogil:
    cdef size_t room = strlen(segment.path) + SUFFIX_ROOM
    cdef char *name = <char *> malloc(room)
    cdef int result
    if name == NULL:
        return -ENOMEM
    snprintf(name, room, b"%s%s", segment.path, suffix)
    result = segment.disk.unlink(segment.disk.self, name)
    free(name)
    return 0 if result == -ENOENT else result


cdef int segment_unlink(Segment *segment) noexcept nogil:
    store32(&segment.dropped, SEGMENT_DELETED)
    return segment_unlink_files(segment)


cdef int segment_unlink_files(Segment *segment) noexcept nogil:
    # The .log is removed first. If a crash follows, the next load removes the indexes that have no .log. If the
    # transaction index were removed first, a crash could leave a segment that shows aborted records as committed. (A
    # load rebuilds the other indexes.)
    cdef int rest
    cdef int result = segment_unlink_part(segment, b".log")
    cdef int32_t aborted = segment_open_part(segment, b".txnindex", O_RDWR | O_CLOEXEC)
    close_file(segment.disk, &aborted)
    if aborted != -ENOENT:  # after any other error, such as no free file descriptor, the file may exist
        rest = segment_sync_names(segment)
        if rest == 0:
            rest = segment_unlink_part(segment, b".txnindex")
        result = result if result < 0 else rest
    rest = segment_unlink_part(segment, b".index")
    result = result if result < 0 else rest
    rest = segment_unlink_part(segment, b".timeindex")
    result = result if result < 0 else rest
    rest = segment_unlink_part(segment, b".snapshot")
    return result if result < 0 else rest


cdef int segment_sync_names(const Segment *segment) noexcept nogil:
    cdef char *directory = strdup(segment.path)
    cdef int result = -ENOMEM
    if directory != NULL:
        strrchr(directory, c"/")[0] = 0
        result = segment.disk.sync_directory(segment.disk.self, directory)
        free(directory)
    return 0 if result == -ENOENT else result


cdef int segment_sync(Segment *segment, bint indexes) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result = segment_open_log(segment)
    if result == 0:
        result = disk.sync(disk.self, file_of(segment))
    if result == 0 and indexes:
        result = sync_part(segment, b".index")
        if result == 0:
            result = sync_part(segment, b".timeindex")
        if result == 0:
            result = sync_part(segment, b".txnindex")  # without this file, aborted records would look committed
    return result


cdef int sync_part(Segment *segment, const char *suffix) noexcept nogil:
    """Syncs the file if it exists. Uses a temporary handle, because a large log has more sealed segments than a process
    may have open files."""
    cdef const Disk *disk = segment.disk
    cdef int result
    cdef int file = segment_open_part(segment, suffix, O_RDWR | O_CLOEXEC)
    if file < 0:
        return 0 if file == -ENOENT else file
    result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return result


def live_count():
    """Returns the number of segments in this process that have not been freed."""
    return load32(&live_segments)
