"""The environment: native code reaches clock, disk and network only through its three tables of function pointers.

A node owns one `Env`. environment.pyx has the real one, simulated_disk.pyx and simulated_network.pyx have simulated
parts. Any thread may call every function without the GIL. A result below zero is `-errno`; nothing here raises, retries
or logs.
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
    int (*open)(void *self, const char *path, int flags, int mode) noexcept nogil  # a file handle, or -errno
    int (*close)(void *self, int file) noexcept nogil
    # returns fewer bytes than asked only at the file's end
    int64_t (*pread)(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil
    # The same, but -EAGAIN instead of waiting for the device (RWF_NOWAIT)
    int64_t (*pread_cached)(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil
    # writes all bytes, or returns -errno
    int64_t (*pwrite)(void *self, int file, const void *data, size_t size, int64_t offset) noexcept nogil
    int (*sync)(void *self, int file) noexcept nogil  # data and size (fdatasync)
    int (*truncate)(void *self, int file, int64_t size) noexcept nogil
    int64_t (*size)(void *self, int file) noexcept nogil
    int (*rename)(void *self, const char *old, const char *new) noexcept nogil
    int (*unlink)(void *self, const char *path) noexcept nogil
    int (*make_directory)(void *self, const char *path) noexcept nogil
    int (*sync_directory)(void *self, const char *path) noexcept nogil
    # Announces a range that is needed soon: starts to read ahead and does not wait. Behind the file's end it allocates
    # blocks without a change of the size, and may wait.
    int (*want)(void *self, int file, int64_t offset, size_t size) noexcept nogil
    # The descriptor of `file` for sendfile(2); -1: the file has none and `send_file` copies.
    int (*descriptor)(void *self, int file) noexcept nogil


ctypedef struct Transport:
    void *self
    # Bytes received; 0 when the peer sends no more; -EAGAIN when nothing has come yet.
    int64_t (*recv)(void *self, int handle, void *into, size_t size) noexcept nogil
    int64_t (*send)(void *self, int handle, const IoVec *parts, int count, bint more) noexcept nogil
    int64_t (*send_file)(void *self, int handle, const Disk *disk, int file, int64_t offset, size_t size) noexcept nogil
    int64_t (*pending)(void *self, int handle) noexcept nogil  # bytes that wait inside the transport itself (TLS)
    int (*want)(void *self, int handle) noexcept nogil  # EPOLLIN | EPOLLOUT that the transport needs by itself
    void (*close)(void *self, int handle) noexcept nogil


ctypedef struct Env:
    Clock clock
    Disk disk
    Transport transport
    # The agenda of the node's simulated world, and the node's number there. Such a node has the agenda's tasks in place
    # of threads, and its bells in place of eventfds. NULL: the real world.
    Agenda *agenda
    int64_t owner


cdef void env_real(Env *env) noexcept nogil  # fills in the real clock, disk and TCP transport
# The disk that logs and segments may keep. For the real disk it is a static table; any other disk is returned as it is,
# and its owner keeps it alive.
cdef const Disk *disk_that_lasts(const Disk *disk) noexcept nogil


ctypedef struct ManualTime:
    int64_t monotonic_ns  # atomic
    int64_t wall_ns


cdef class ManualClock:
    cdef ManualTime time


cdef class Environment:
    """Owns an Env; a node, its logs and its listeners keep a reference for as long as they use it."""
    cdef Env env
    cdef object keep  # the owners of the tables' `self` pointers
    cdef uint64_t random  # the state of the seed's numbers, in a simulated world

    cdef int join(self, object agenda, object seed) except -1
