"""The environment of a node. Native code uses the clock, the disk and the network only through the environment's three
tables of function pointers.

A node owns one `Env`. environment.pyx implements the real environment. simulated_disk.pyx and simulated_network.pyx
implement a simulated disk and a simulated network. Any thread may call every function without the GIL. A result below
zero is `-errno`. No function raises or logs. The real functions retry only calls that a signal interrupted (EINTR).
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stddef cimport size_t

from kafkacore._fast.world.agenda cimport Agenda

cdef extern from "<sys/uio.h>" nogil:
    ctypedef struct IoVec "struct iovec":
        void *iov_base
        size_t iov_len


ctypedef struct Clock:
    void *self
    int64_t (*monotonic_ns)(void *self) noexcept nogil
    int64_t (*wall_ms)(void *self) noexcept nogil


ctypedef struct Disk:
    void *self
    int (*open)(void *self, const char *path, int flags, int mode) noexcept nogil  # returns a file handle or -errno
    int (*close)(void *self, int file) noexcept nogil
    # Returns fewer bytes than requested only at the end of the file.
    int64_t (*pread)(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil
    # Like `pread`, but returns -EAGAIN instead of waiting for the device (RWF_NOWAIT).
    int64_t (*pread_cached)(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil
    # Writes all bytes or returns -errno.
    int64_t (*pwrite)(void *self, int file, const void *data, size_t size, int64_t offset) noexcept nogil
    int (*sync)(void *self, int file) noexcept nogil  # syncs the file's data and size (fdatasync)
    int (*truncate)(void *self, int file, int64_t size) noexcept nogil
    int64_t (*size)(void *self, int file) noexcept nogil
    int (*rename)(void *self, const char *old, const char *new) noexcept nogil
    int (*unlink)(void *self, const char *path) noexcept nogil
    int (*make_directory)(void *self, const char *path) noexcept nogil
    int (*sync_directory)(void *self, const char *path) noexcept nogil
    # Announces that a range of the file is needed soon. Within the file, the function starts to read the range into the
    # page cache and does not wait. Beyond the end of the file, it allocates blocks without changing the file's size,
    # and may wait.
    int (*want)(void *self, int file, int64_t offset, size_t size) noexcept nogil
    # Returns the file descriptor of `file` for sendfile(2). Returns -1 if the file has none; then `Transport.send_file`
    # copies the bytes.
    int (*descriptor)(void *self, int file) noexcept nogil


ctypedef struct Transport:
    void *self
    # Returns the number of received bytes, 0 if the peer has closed its side, or -EAGAIN if no bytes have arrived yet.
    int64_t (*recv)(void *self, int handle, void *into, size_t size) noexcept nogil
    int64_t (*send)(void *self, int handle, const IoVec *parts, int count, bint more) noexcept nogil
    int64_t (*send_file)(void *self, int handle, const Disk *disk, int file, int64_t offset, size_t size) noexcept nogil
    # Returns the number of received bytes that the transport itself has buffered (TLS).
    int64_t (*pending)(void *self, int handle) noexcept nogil
    int (*want)(void *self, int handle) noexcept nogil  # returns the EPOLL events that the transport needs
    void (*close)(void *self, int handle) noexcept nogil


ctypedef struct Env:
    Clock clock
    Disk disk
    Transport transport
    # The agenda of the node's simulated world (agenda.pxd), and the number of the node in that world. The node uses the
    # agenda's tasks in place of threads, and the agenda's bells in place of eventfds. `agenda` is NULL in the real
    # world.
    Agenda *agenda
    int64_t owner


cdef void env_real(Env *env) noexcept nogil  # sets the real clock, disk and TCP transport
# Returns a table that logs and segments can use even after the `Env` is freed. For the real disk, this table is static.
# The table of any other disk is returned unchanged, and the owner of that disk must keep the table alive.
cdef const Disk *disk_that_lasts(const Disk *disk) noexcept nogil


ctypedef struct ManualTime:
    int64_t monotonic_ns  # atomic
    int64_t wall_ns


cdef class ManualClock:
    cdef ManualTime time


cdef class Environment:
    """Owns an `Env`. A node, its logs and its listeners hold a reference to the `Environment` for as long as they use
    it.
    """
    cdef Env env
    cdef object keep  # the owners of the tables' `self` pointers
    cdef uint64_t random  # in a simulated world, the state of the random numbers that the seed determines

    cdef int join(self, object agenda, object seed) except -1
