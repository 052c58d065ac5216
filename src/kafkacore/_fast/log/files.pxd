"""The small files in a log's directory, next to its segments. A writer writes a whole new file under a temporary name
and then renames it, so that a reader finds either the old file or the new one. (A producer snapshot has a checksum
instead.) The functions block, so call them only on threads of the I/O pool (io.pxd). Unless their comment says
otherwise, they return 0 or -errno.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.producers cimport Producers

# Writes a file. With `synced`, its content and its name survive a power loss once the function has returned.
cdef int write_small_file(const Disk *disk, const char *directory, const char *name, const void *data, size_t size,
                          bint synced) noexcept nogil
# Reads the whole file into a malloc'ed block. Returns its size, or -errno. Rejects files over 64 MiB with -EFBIG.
cdef int64_t read_small_file(const Disk *disk, const char *directory, const char *name, uint8_t **data) noexcept nogil

# The steps of `write_small_file`, for callers that write many files at once: write the temporary file, sync it, rename
# it. The caller then syncs the directory.
cdef int begin_small_file(const Disk *disk, const char *directory, const char *name, const void *data,
                          size_t size) noexcept nogil
cdef int sync_small_file(const Disk *disk, const char *directory, const char *name) noexcept nogil
cdef int name_small_file(const Disk *disk, const char *directory, const char *name) noexcept nogil

cdef int begin_partition_metadata(const Disk *disk, const char *directory, const uint8_t *topic_id) noexcept nogil
cdef int begin_epochs(Log *log, const char *directory) noexcept nogil
cdef int write_partition_metadata(const Disk *disk, const char *directory, const uint8_t *topic_id) noexcept nogil
# Copies the leader epochs under `Log.lock`, and writes the copy without the lock.
cdef int write_epochs(Log *log, const char *directory, bint synced) noexcept nogil
# Reads the whole producer snapshot at `offset`, like `read_small_file`, but accepts up to 2 GiB.
cdef int64_t read_producer_snapshot(const Disk *disk, const char *directory, int64_t offset,
                                    uint8_t **data) noexcept nogil
# The next two functions write a snapshot file with the state that the producers had at `offset`. The second one first
# copies this state from the log, under `Log.lock`.
cdef int write_producers(const Disk *disk, const char *directory, const Producers *producers, int64_t offset,
                         bint synced) noexcept nogil
cdef int write_producer_snapshot(Log *log, const char *directory, int64_t offset, bint synced) noexcept nogil
