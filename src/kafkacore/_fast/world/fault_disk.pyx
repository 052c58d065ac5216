"""Implements the real disk with faults that a test orders. fault_disk.pxd has the contract."""

cimport cython

from libc.errno cimport ENOSPC
from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.atomics cimport add64, cas64, load32, load64, store32, store64
from kafkacore._fast.world.environment cimport Env, Environment, ManualClock, env_real
from kafkacore._fast.world.fault_kinds cimport FAULT_NAMES, FAULT_READ, FAULT_SYNC, FAULT_WRITE

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_TRUNC

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef Env real
env_real(&real)

FAULT_KINDS = ("read", "write", "sync", "names")  # the index is the number of the kind


cdef inline int refused_at_once(void *self, int kind) noexcept nogil:
    """Returns 0, or the negated errno that a test has ordered for this kind."""
    cdef FaultState *state = <FaultState *> self
    cdef int32_t error = load32(&state.errors[kind])
    if error:
        add64(&state.hits, 1)
    return -error


cdef inline int refused(void *self, int kind) noexcept nogil:
    """Waits for the ordered delay, then returns the same as `refused_at_once`."""
    cdef int64_t delay_us = load64(&(<FaultState *> self).delay_us)
    if delay_us:
        usleep(<unsigned int> delay_us)
    return refused_at_once(self, kind)


cdef int64_t take_room(FaultState *state, int64_t size) noexcept nogil:
    """Reserves space for a write of `size` bytes. Returns the number of these bytes that fit."""
    cdef int64_t room
    cdef int64_t fits
    while True:
        room = load64(&state.room_bytes)
        if room < 0:
            return size
        fits = min(room, size)
        if cas64(&state.room_bytes, room, room - fits):
            return fits


cdef int fault_open(void *self, const char *path, int flags, int mode) noexcept nogil:
    cdef int error = refused(self, FAULT_NAMES) if flags & (O_CREAT | O_TRUNC) else refused(self, FAULT_READ)
    return error if error else real.disk.open(NULL, path, flags, mode)


cdef int64_t fault_pread(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef int error = refused(self, FAULT_READ)
    return error if error else real.disk.pread(NULL, file, into, size, offset)


cdef int64_t fault_pread_cached(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef int error = refused_at_once(self, FAULT_READ)  # no delay, because this read does not reach the device
    return error if error else real.disk.pread_cached(NULL, file, into, size, offset)


cdef int64_t fault_pwrite(void *self, int file, const void *data, size_t size, int64_t offset) noexcept nogil:
    cdef FaultState *state = <FaultState *> self
    cdef int64_t written
    cdef int64_t fits
    cdef int error = refused(self, FAULT_WRITE)
    if error:
        return error
    fits = take_room(state, <int64_t> size)
    written = real.disk.pwrite(NULL, file, data, <size_t> fits, offset)
    if written < 0 or fits == <int64_t> size:
        return written
    add64(&state.hits, 1)
    return -ENOSPC


cdef int fault_sync(void *self, int file) noexcept nogil:
    cdef int error = refused(self, FAULT_SYNC)
    return error if error else real.disk.sync(NULL, file)


cdef int fault_truncate(void *self, int file, int64_t size) noexcept nogil:
    cdef int error = refused(self, FAULT_WRITE)
    return error if error else real.disk.truncate(NULL, file, size)


cdef int fault_rename(void *self, const char *old, const char *new) noexcept nogil:
    cdef int error = refused(self, FAULT_NAMES)
    return error if error else real.disk.rename(NULL, old, new)


cdef int fault_unlink(void *self, const char *path) noexcept nogil:
    cdef int error = refused(self, FAULT_NAMES)
    return error if error else real.disk.unlink(NULL, path)


cdef int fault_make_directory(void *self, const char *path) noexcept nogil:
    cdef int error = refused(self, FAULT_NAMES)
    return error if error else real.disk.make_directory(NULL, path)


cdef int fault_sync_directory(void *self, const char *path) noexcept nogil:
    cdef int error = refused(self, FAULT_NAMES)
    return error if error else real.disk.sync_directory(NULL, path)


@cython.no_gc  # native code uses the disk as long as one of its environments exists
cdef class FaultDisk:

    def __cinit__(self):
        self.state.room_bytes = -1
        self.table = real.disk
        self.table.self = &self.state
        self.table.open = fault_open
        self.table.pread = fault_pread
        self.table.pread_cached = fault_pread_cached
        self.table.pwrite = fault_pwrite
        self.table.sync = fault_sync
        self.table.truncate = fault_truncate
        self.table.rename = fault_rename
        self.table.unlink = fault_unlink
        self.table.make_directory = fault_make_directory
        self.table.sync_directory = fault_sync_directory

    def environment(self, ManualClock clock=None) -> Environment:
        cdef Environment made = Environment(clock)
        made.env.disk = self.table
        made.keep = (made.keep, self)
        return made

    def fail(self, str kind, int error) -> None:
        if kind not in FAULT_KINDS:
            raise ValueError(f"a disk fails to {', '.join(FAULT_KINDS)}, not to {kind!r}")
        store32(&self.state.errors[FAULT_KINDS.index(kind)], error)

    def limit(self, room_bytes) -> None:
        store64(&self.state.room_bytes, -1 if room_bytes is None else max(room_bytes, 0))

    def slow_down(self, int64_t delay_us) -> None:
        if not 0 <= delay_us < 1000000:
            raise ValueError(f"a disk operation takes from 0 to 1 s longer, not {delay_us} us")
        store64(&self.state.delay_us, delay_us)

    @property
    def hits(self) -> int:
        return load64(&self.state.hits)
