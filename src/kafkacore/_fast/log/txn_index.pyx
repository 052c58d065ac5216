"""Implements txn_index.pxd: the transaction indexes of segments."""

from libc.errno cimport EINVAL, EIO, ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kafkacore._fast.base.atomics cimport load32, store32
from kafkacore._fast.base.cursor cimport be16, be64, put16, put64
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.log.segment cimport ABORTED_ENTRY_BYTES, segment_open_part

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_CLOEXEC

cdef enum:
    ENTRY_VERSION = 0


cdef int txn_index_entry(const uint8_t *raw, AbortedTransaction *entry) noexcept nogil:
    entry.producer_id = <int64_t> be64(raw + 2)
    entry.first_offset = <int64_t> be64(raw + 10)
    entry.last_offset = <int64_t> be64(raw + 18)
    entry.last_stable_offset = <int64_t> be64(raw + 26)
    return 0 if be16(raw) == ENTRY_VERSION else -EINVAL


cdef int txn_index_open(Segment *segment) noexcept nogil:
    return segment_open_part(segment, b".txnindex", O_RDWR | O_CREAT | O_CLOEXEC)


cdef int txn_index_write(Segment *segment, int file, const EndedTransaction *ended) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef uint8_t entry[ABORTED_ENTRY_BYTES]
    cdef int64_t at
    put16(entry, ENTRY_VERSION)
    put64(entry + 2, ended.producer_id)
    put64(entry + 10, ended.first_offset)
    put64(entry + 18, ended.last_offset)
    put64(entry + 26, ended.last_stable_offset)
    at = disk.size(disk.self, file)
    if at >= 0:
        at = disk.pwrite(disk.self, file, entry, ABORTED_ENTRY_BYTES, at)
    return <int> at if at < 0 else 0


cdef int txn_index_append(Segment *segment, const EndedTransaction *ended) noexcept nogil:
    cdef int result
    cdef int file = txn_index_open(segment)
    if file < 0:
        return file
    result = txn_index_write(segment, file, ended)
    segment.disk.close(segment.disk.self, file)
    return result


cdef int64_t read_kept(const Segment *segment, AbortedTransaction **into) noexcept nogil:
    cdef int64_t i, count = segment.aborted_bytes // ABORTED_ENTRY_BYTES
    cdef int result = 0
    into[0] = <AbortedTransaction *> malloc(count * sizeof(AbortedTransaction) + 1)
    if into[0] == NULL:
        return -ENOMEM
    for i in range(count):
        if result == 0:
            result = txn_index_entry(segment.aborted + i * ABORTED_ENTRY_BYTES, &into[0][i])
    if result < 0 or count == 0:
        free(into[0])
        into[0] = NULL
    return result if result < 0 else count


cdef int txn_index_reset(Segment *segment) noexcept nogil:
    return cut(segment, 0)


cdef int cut(Segment *segment, int64_t size) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int result
    cdef int file = segment_open_part(segment, b".txnindex", O_RDWR | O_CLOEXEC)
    if file < 0:
        return 0 if file == -ENOENT else file
    result = disk.truncate(disk.self, file, size)
    disk.close(disk.self, file)
    return result


cdef int64_t txn_index_read(Segment *segment, AbortedTransaction **into) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef uint8_t entry[ABORTED_ENTRY_BYTES]
    cdef int64_t size, got = 0
    cdef int64_t i, count = 0
    cdef int file
    into[0] = NULL
    if segment.aborted != NULL and not load32(&segment.aborted_stale):
        return read_kept(segment, into)
    file = segment_open_part(segment, b".txnindex", O_RDONLY | O_CLOEXEC)
    if file < 0:
        return 0 if file == -ENOENT else file
    size = disk.size(disk.self, file)
    if size >= 0:
        count = size // ABORTED_ENTRY_BYTES
        into[0] = <AbortedTransaction *> malloc(count * sizeof(AbortedTransaction) + 1)
        got = 0 if into[0] != NULL else -ENOMEM
    for i in range(count):
        if got < 0:
            break
        got = disk.pread(disk.self, file, entry, ABORTED_ENTRY_BYTES, i * ABORTED_ENTRY_BYTES)
        if got == ABORTED_ENTRY_BYTES:
            got = txn_index_entry(entry, &into[0][i])
        elif got >= 0:
            got = -EIO
    disk.close(disk.self, file)
    if size < 0 or got < 0 or count == 0:
        free(into[0])
        into[0] = NULL
    if size < 0 or got < 0:
        return size if size < 0 else got
    return count


cdef bint is_whole(Segment *segment) noexcept nogil:
    cdef const Disk *disk = segment.disk
    cdef int64_t size = 0
    cdef int file = segment_open_part(segment, b".txnindex", O_RDONLY | O_CLOEXEC)
    if file >= 0:
        size = disk.size(disk.self, file)
        disk.close(disk.self, file)
    return size >= 0 and size % ABORTED_ENTRY_BYTES == 0


cdef int txn_index_last(Segment *segment, int64_t *last_offset) noexcept nogil:
    cdef AbortedTransaction *entries
    cdef int64_t count = txn_index_read(segment, &entries)
    if count >= 0 and not is_whole(segment):
        count = -EINVAL  # an incomplete last entry means that a transaction is missing, which would look committed
    elif count > 0 and entries[count - 1].last_offset < segment.base_offset:
        count = -EINVAL  # the last transaction of the index did not end in this segment
    elif count > 0:
        last_offset[0] = entries[count - 1].last_offset
    free(entries)
    return <int> count if count < 0 else 0


cdef int txn_index_truncate(Segment *segment, int64_t end_offset) noexcept nogil:
    cdef AbortedTransaction *entries
    cdef int64_t kept = 0
    cdef int64_t count = txn_index_read(segment, &entries)
    if count <= 0:
        return <int> count
    while kept < count and entries[kept].last_offset < end_offset:
        kept += 1
    free(entries)
    store32(&segment.aborted_stale, 1)  # the file differs from `aborted` from now on
    return cut(segment, kept * ABORTED_ENTRY_BYTES)
