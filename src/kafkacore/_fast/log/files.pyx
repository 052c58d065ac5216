"""Implements files.pxd: the small files in a log's directory (PartitionMetadataFile, CheckpointFile,
ProducerStateManager).
"""

from libc.errno cimport EFBIG, ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from kafkacore._fast.base.cursor cimport Writer, writer_free, writer_init
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.log.epochs cimport epochs_write
from kafkacore._fast.log.log cimport EPOCHS_BEHIND, EPOCHS_SAVED, Log
from kafkacore._fast.log.producers cimport producers_bytes, producers_write
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_CLOEXEC

cdef enum:
    MAX_SMALL_BYTES = 64 << 20
    MAX_SNAPSHOT_BYTES = 0x7FFFFFFF  # Kafka writes no larger snapshot
    SHORT_BYTES = 512
    METADATA_BYTES = 64
    SNAPSHOT_NAME_BYTES = 32

cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef char *join(const char *directory, const char *name, const char *suffix) noexcept nogil:
    cdef size_t room = strlen(directory) + strlen(name) + strlen(suffix) + 2
    cdef char *path = <char *> malloc(room)
    if path != NULL:
        snprintf(path, room, b"%s/%s%s", directory, name, suffix)
    return path


cdef int sync_file(const Disk *disk, const char *path) noexcept nogil:
    cdef int result
    cdef int file = disk.open(disk.self, path, O_RDWR | O_CLOEXEC, 0)
    if file < 0:
        return file
    result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return result


cdef int write_file(const Disk *disk, const char *path, const void *data, size_t size, bint synced) noexcept nogil:
    cdef int64_t result
    cdef int file = disk.open(disk.self, path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0o644)
    if file < 0:
        return file
    result = disk.pwrite(disk.self, file, data, size, 0)
    if result >= 0 and synced:
        result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return <int> result if result < 0 else 0


cdef int begin_small_file(const Disk *disk, const char *directory, const char *name, const void *data,
                          size_t size) noexcept nogil:
    cdef char *temporary = join(directory, name, b".tmp")
    cdef int result = -ENOMEM
    if temporary != NULL:
        result = write_file(disk, temporary, data, size, False)
    free(temporary)
    return result


cdef int sync_small_file(const Disk *disk, const char *directory, const char *name) noexcept nogil:
    cdef char *temporary = join(directory, name, b".tmp")
    cdef int result = -ENOMEM
    if temporary != NULL:
        result = sync_file(disk, temporary)
    free(temporary)
    return result


cdef int name_small_file(const Disk *disk, const char *directory, const char *name) noexcept nogil:
    cdef char *path = join(directory, name, b"")
    cdef char *temporary = join(directory, name, b".tmp")
    cdef int result = -ENOMEM
    if path != NULL and temporary != NULL:
        result = disk.rename(disk.self, temporary, path)
    free(path)
    free(temporary)
    return result


cdef int write_small_file(const Disk *disk, const char *directory, const char *name, const void *data, size_t size,
                          bint synced) noexcept nogil:
    cdef char *path = join(directory, name, b"")
    cdef char *temporary = join(directory, name, b".tmp")
    cdef int result = -ENOMEM
    if path != NULL and temporary != NULL:
        result = write_file(disk, temporary, data, size, synced)
        if result == 0:
            result = disk.rename(disk.self, temporary, path)
        if result == 0 and synced:
            result = disk.sync_directory(disk.self, directory)
    free(path)
    free(temporary)
    return result


cdef int64_t read_whole(const Disk *disk, int file, int64_t limit, uint8_t **data) noexcept nogil:
    """Reads a whole file. When the node starts, it reads three such files per log, and most of them are short. So this
    function reads the file without asking for its size first."""
    cdef int64_t room = SHORT_BYTES
    cdef int64_t size, got
    while True:
        data[0] = <uint8_t *> malloc(<size_t> room)
        got = disk.pread(disk.self, file, data[0], <size_t> room, 0) if data[0] != NULL else -ENOMEM
        if 0 <= got < room:
            return got  # a short read means that the file ends here
        free(data[0])
        data[0] = NULL
        size = disk.size(disk.self, file) if got >= 0 else got
        if size < 0 or size > limit:
            return size if size < 0 else -EFBIG
        room = size + 1


cdef int64_t read_file(const Disk *disk, const char *directory, const char *name, int64_t limit,
                       uint8_t **data) noexcept nogil:
    cdef char *path = join(directory, name, b"")
    cdef int64_t size
    cdef int file
    data[0] = NULL
    if path == NULL:
        return -ENOMEM
    file = disk.open(disk.self, path, O_RDONLY | O_CLOEXEC, 0)
    free(path)
    if file < 0:
        return file
    size = read_whole(disk, file, limit, data)
    disk.close(disk.self, file)
    return size


cdef int64_t read_small_file(const Disk *disk, const char *directory, const char *name, uint8_t **data) noexcept nogil:
    return read_file(disk, directory, name, MAX_SMALL_BYTES, data)


cdef int metadata_text(const uint8_t *topic_id, char *text) noexcept nogil:
    """Writes the text of partition.metadata to `text`, which has room for METADATA_BYTES. Returns the size of the
    text."""
    cdef char encoded[23]
    cdef uint32_t bits = 0
    cdef int have = 0
    cdef int at = 0
    cdef int i
    for i in range(16):
        bits = (bits << 8 | topic_id[i]) & 0xFFFFFF
        have += 8
        while have >= 6:
            have -= 6
            encoded[at] = BASE64[bits >> have & 63]
            at += 1
    encoded[at] = BASE64[bits << 4 & 63]
    encoded[at + 1] = 0
    return snprintf(text, METADATA_BYTES, b"version: 0\ntopic_id: %s", encoded)


cdef int write_partition_metadata(const Disk *disk, const char *directory, const uint8_t *topic_id) noexcept nogil:
    cdef char text[METADATA_BYTES]
    cdef int size = metadata_text(topic_id, text)
    return write_small_file(disk, directory, b"partition.metadata", text, <size_t> size, True)


cdef int begin_partition_metadata(const Disk *disk, const char *directory, const uint8_t *topic_id) noexcept nogil:
    cdef char text[METADATA_BYTES]
    cdef int size = metadata_text(topic_id, text)
    return begin_small_file(disk, directory, b"partition.metadata", text, <size_t> size)


cdef void take_epochs(Log *log, Writer *out) noexcept nogil:
    writer_init(out, MAX_SMALL_BYTES)
    mutex_lock(&log.lock)
    epochs_write(log, out)
    log.epochs_dirty = EPOCHS_SAVED
    mutex_unlock(&log.lock)


cdef int written_epochs(Log *log, Writer *out, int result) noexcept nogil:
    """Frees the text. After an error, marks the entries as missing in the file, so that the next attempt writes
    them."""
    writer_free(out)
    if result < 0:
        mutex_lock(&log.lock)
        log.epochs_dirty = EPOCHS_BEHIND
        mutex_unlock(&log.lock)
    return result


cdef int write_epochs(Log *log, const char *directory, bint synced) noexcept nogil:
    cdef Writer out
    cdef int result = -ENOMEM
    take_epochs(log, &out)
    if not out.bad:
        result = write_small_file(log.dir.disk, directory, b"leader-epoch-checkpoint", out.data, out.size, synced)
    return written_epochs(log, &out, result)


cdef int begin_epochs(Log *log, const char *directory) noexcept nogil:
    cdef Writer out
    cdef int result = -ENOMEM
    take_epochs(log, &out)
    if not out.bad:
        result = begin_small_file(log.dir.disk, directory, b"leader-epoch-checkpoint", out.data, out.size)
    return written_epochs(log, &out, result)


cdef int64_t read_producer_snapshot(const Disk *disk, const char *directory, int64_t offset,
                                    uint8_t **data) noexcept nogil:
    cdef char name[SNAPSHOT_NAME_BYTES]
    snprintf(name, SNAPSHOT_NAME_BYTES, b"%020lld.snapshot", <long long> offset)
    return read_file(disk, directory, name, MAX_SNAPSHOT_BYTES, data)


cdef int save_snapshot(const Disk *disk, const char *directory, int64_t offset, const Writer *content,
                       bint synced) noexcept nogil:
    """Writes a producer snapshot. Uses no temporary file: if a crash interrupts the write, the checksum of the snapshot
    is wrong, and the load discards the snapshot."""
    cdef char name[SNAPSHOT_NAME_BYTES]
    cdef char *path
    cdef int result = -ENOMEM
    snprintf(name, SNAPSHOT_NAME_BYTES, b"%020lld.snapshot", <long long> offset)
    path = join(directory, name, b"")
    if path != NULL and not content.bad and content.size:
        result = write_file(disk, path, content.data, content.size, synced)
    free(path)
    return result


cdef int write_producers(const Disk *disk, const char *directory, const Producers *producers, int64_t offset,
                         bint synced) noexcept nogil:
    cdef Writer out
    cdef int result
    writer_init(&out, producers_bytes(producers))
    producers_write(producers, &out)
    result = save_snapshot(disk, directory, offset, &out, synced)
    writer_free(&out)
    return result


cdef int write_producer_snapshot(Log *log, const char *directory, int64_t offset, bint synced) noexcept nogil:
    cdef Writer out
    cdef int result
    writer_init(&out, 0)
    mutex_lock(&log.lock)
    if log.producers != NULL:
        out.limit = producers_bytes(log.producers)
        producers_write(log.producers, &out)
    mutex_unlock(&log.lock)
    result = save_snapshot(log.dir.disk, directory, offset, &out, synced)
    writer_free(&out)
    return result
