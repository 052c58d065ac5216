"""The small files beside a log's segments. Each is written whole to a temporary file and then renamed, so that a reader
finds either the old file or the new one. Blocking: pool threads only. All return 0 or -errno.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.producers cimport Producers

# `synced`: the bytes and the name survive a power loss when this returns.
cdef int write_small_file(const Disk *disk, const char *directory, const char *name, const void *data, size_t size,
                          bint synced) noexcept nogil
# Reads the whole file into a malloc'ed block. Returns its size, or -errno. Files over 64 MiB are refused with -EFBIG.
cdef int64_t read_small_file(const Disk *disk, const char *directory, const char *name, uint8_t **data) noexcept nogil

# The same in steps, for many files at once: writes the temporary file; syncs it; renames it. The caller syncs the
# directory.
cdef int begin_small_file(const Disk *disk, const char *directory, const char *name, const void *data,
                          size_t size) noexcept nogil
cdef int sync_small_file(const Disk *disk, const char *directory, const char *name) noexcept nogil
cdef int name_small_file(const Disk *disk, const char *directory, const char *name) noexcept nogil

cdef int begin_partition_metadata(const Disk *disk, const char *directory, const uint8_t *topic_id) noexcept nogil
cdef int begin_epochs(Log *log, const char *directory) noexcept nogil
cdef int write_partition_metadata(const Disk *disk, const char *directory, const uint8_t *topic_id) noexcept nogil
# Copies the entries under the lock and writes them without it.
cdef int write_epochs(Log *log, const char *directory, bint synced) noexcept nogil
# Writes the producer state below `offset` as the snapshot of that offset. The second function copies the log's state
# under the lock first.
cdef int write_producers(const Disk *disk, const char *directory, const Producers *producers, int64_t offset,
                         bint synced) noexcept nogil
cdef int write_producer_snapshot(Log *log, const char *directory, int64_t offset, bint synced) noexcept nogil
