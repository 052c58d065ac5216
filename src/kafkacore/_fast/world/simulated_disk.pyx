"""Implements the simulated disk for Python. simulated_disk.pxd has the contract."""

cimport cython
from libc.errno cimport EEXIST, EISDIR, ENOENT, ENOMEM, ENOTEMPTY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strcmp

from kafkacore._fast.base.atomics cimport store64
from kafkacore._fast.base.lock_order cimport RANK_SIMULATED_DISK
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.world.agenda cimport SimulatedAgenda
from kafkacore._fast.world.environment cimport Environment, ManualClock
from kafkacore._fast.world.simulated_operations cimport (
    ANY_LIFE, NAME_MAKE, NAME_RENAME, NAME_SYNC, NAME_UNLINK, NameChange, change_names, names_below, simulated_table,
)
from kafkacore._fast.world.simulated_store cimport Inode, inode_release, store_cut, store_find, store_free

import errno as errors
import os

from kafkacore._fast.world.fault_disk import FAULT_KINDS

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_TRUNC

cdef int64_t UNLIMITED = 0x7FFFFFFFFFFFFFFF


cdef int64_t copy_synced(SimDisk *disk, const char *path, uint8_t **copy) noexcept nogil:
    """Copies those bytes of a file that would survive any power cut, and returns their number. The caller must free
    `copy`. Returns -ENOENT or -ENOMEM on failure."""
    cdef Inode *inode = NULL
    cdef int64_t size = -ENOENT
    cdef int at
    mutex_lock(&disk.lock)
    for at in range(disk.store.durable.count):
        if strcmp(disk.store.durable.items[at].path, path) == 0:
            inode = disk.store.durable.items[at].inode
            break
    if inode != NULL:
        size = inode.durable.size
        copy[0] = <uint8_t *> malloc(<size_t> max(size, 1))
        if copy[0] == NULL:
            size = -ENOMEM
        elif size > 0:
            memcpy(copy[0], inode.durable.data, <size_t> size)
    mutex_unlock(&disk.lock)
    return size


cdef enum:
    NOTHING = 0
    FILE = 1
    DIRECTORY = 2


cdef uint64_t below(double share) except? 0:
    """Returns a limit. A random 64-bit number is below this limit with the probability `share`."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share is from 0 to 1, not {share}")
    return <uint64_t> 0xFFFFFFFFFFFFFFFFu if share >= 1.0 else <uint64_t> (share * 18446744073709549568.0)


cdef class DiskMount:
    """Keeps the disk and the `Mount` alive for the environment of one process."""
    cdef Mount mount
    cdef SimulatedDisk of


@cython.no_gc
cdef class SimulatedDisk:
    """A disk in memory. `environment` returns the `Environment` through which native code uses this disk. For Python
    code, the disk itself implements the `Files` protocol.

    Paths are plain names, because there is no current directory. Operations raise OSError as the operating system does.
    """

    def __cinit__(self, seed=0):
        memset(&self.disk, 0, sizeof(SimDisk))
        mutex_init(&self.disk.lock, RANK_SIMULATED_DISK)
        self.disk.random = <uint64_t> (seed & 0xFFFFFFFFFFFFFFFF)
        self.disk.cut_at = -1
        self.disk.capacity_bytes = UNLIMITED
        self.locked = set()
        self.mount.disk = &self.disk
        self.mount.life = ANY_LIFE
        simulated_table(&self.table, &self.mount)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.disk.handle_count):
            inode_release(self.disk.handles[i].inode)
        free(self.disk.handles)
        store_free(&self.disk.store)
        mutex_destroy(&self.disk.lock)

    def environment(self, ManualClock clock=None, SimulatedAgenda agenda=None, seed=None):
        cdef Environment made = Environment(clock, agenda, seed)
        cdef DiskMount mounted = DiskMount()
        mounted.of = self
        mounted.mount.disk = &self.disk
        mounted.mount.simulated = agenda is not None
        mounted.mount.life = self.disk.life if agenda is not None else ANY_LIFE
        simulated_table(&made.env.disk, &mounted.mount)
        made.keep = (made.keep, mounted)
        if agenda is not None:
            self.mount.simulated = True  # the operations of Python code take simulated time too
        return made

    # --- power cuts, faults and limits ---

    def cut_power_at(self, int64_t operation):
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.cut_at = operation
            mutex_unlock(&self.disk.lock)

    def cut_power(self):
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.dead = True
            mutex_unlock(&self.disk.lock)

    def restart(self, uint64_t seed=0, bint ordered=True):
        cdef int result
        with nogil:
            mutex_lock(&self.disk.lock)
            result = store_cut(&self.disk.store, seed, ordered)
            self.disk.dead = False
            self.disk.cut_at = -1
            self.disk.life += 1
            mutex_unlock(&self.disk.lock)
        self.locked.clear()
        check(result, "")

    def kill(self):
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.life += 1
            mutex_unlock(&self.disk.lock)
        self.locked.clear()

    @property
    def operations(self):
        cdef int64_t count
        with nogil:
            mutex_lock(&self.disk.lock)
            count = self.disk.operations
            mutex_unlock(&self.disk.lock)
        return count

    @property
    def is_dead(self):
        cdef bint dead
        with nogil:
            mutex_lock(&self.disk.lock)
            dead = self.disk.dead
            mutex_unlock(&self.disk.lock)
        return bool(dead)

    def fail(self, str kind, int error=errors.EIO, int64_t after=0, double share=1.0):
        cdef int number = kind_number(kind)
        cdef uint64_t limit = below(share)
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.faults[number].error = error
            self.disk.faults[number].after = after
            self.disk.faults[number].below = limit
            mutex_unlock(&self.disk.lock)

    def pace(self, str kind, int64_t least_us, most_us=None):
        cdef int number = kind_number(kind)
        cdef int64_t most = least_us if most_us is None else most_us
        if not 0 <= least_us <= most:
            raise ValueError(f"least_us must be from 0 to most_us ({most}), not {least_us}")
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.paces[number].least_ns = least_us * 1000
            self.disk.paces[number].most_ns = most * 1000
            mutex_unlock(&self.disk.lock)

    def take_spent_ns(self):
        cdef int64_t spent_ns
        with nogil:
            mutex_lock(&self.disk.lock)
            spent_ns = self.disk.spent_ns
            self.disk.spent_ns = 0
            mutex_unlock(&self.disk.lock)
        return spent_ns

    def rot(self, double share):
        cdef uint64_t limit = below(share)
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.rot_below = limit
            mutex_unlock(&self.disk.lock)

    def limit(self, capacity_bytes=None):
        cdef int64_t capacity = UNLIMITED if capacity_bytes is None else capacity_bytes
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.capacity_bytes = capacity
            mutex_unlock(&self.disk.lock)

    def slow_down(self, int64_t delay_us):
        store64(&self.disk.delay_us, delay_us)

    def cool(self, bint cold=True):
        cdef int i
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.cold = cold
            for i in range(self.disk.store.now.count):
                self.disk.store.now.items[i].inode.warm = not cold
            mutex_unlock(&self.disk.lock)

    # --- Files ---

    cdef int open_file(self, str path, int flags) except -1:
        cdef bytes encoded = path.encode()
        cdef const char *name = encoded
        cdef int file
        with nogil:
            file = self.table.open(&self.mount, name, flags, 0o644)
        return check(file, path)

    cdef int change(self, NameChange kind, str path, str other) except? -1:
        """Changes names in a directory. Returns 0 or -errno."""
        cdef bytes encoded = path.encode()
        cdef bytes encoded_other = other.encode()
        cdef const char *name = encoded
        cdef const char *other_name = encoded_other
        cdef int result
        with nogil:
            result = change_names(&self.mount, kind, name, other_name)
        return result

    def synced(self, str path):
        cdef bytes name = path.encode()
        cdef const char *named = name
        cdef uint8_t *copy = NULL
        cdef int64_t size
        with nogil:
            size = copy_synced(&self.disk, named, &copy)
        check(<int> min(size, 0), path)
        try:
            return bytes(copy[:size])
        finally:
            free(copy)

    def read(self, str path):
        return self.read_part(path, 0, self.size(path))

    def read_part(self, str path, int64_t position, int64_t max_bytes):
        cdef int file = self.open_file(path, 0)
        cdef bytearray into = bytearray(min(max_bytes, max(self.size_of(file) - position, 0)))
        cdef char *start = into
        cdef size_t size = len(into)
        cdef int64_t got
        with nogil:
            got = self.table.pread(&self.mount, file, start, size, position)
            self.table.close(&self.mount, file)
        check(<int> min(got, 0), path)
        return bytes(into[:got])

    cdef int64_t size_of(self, int file):
        """Returns the size of an open file, or -errno."""
        cdef int64_t size
        with nogil:
            size = self.table.size(&self.mount, file)
        return size

    def write(self, str path, data):
        cdef bytes content = bytes(data)
        cdef const char *start = content
        cdef size_t size = len(content)
        cdef int file = self.open_file(path, O_CREAT | O_TRUNC)
        cdef int64_t result
        with nogil:
            result = self.table.pwrite(&self.mount, file, start, size, 0)
            if result >= 0:
                result = self.table.sync(&self.mount, file)
            self.table.close(&self.mount, file)
        check(<int> min(result, 0), path)

    def write_part(self, str path, int64_t position, data):
        cdef bytes content = bytes(data)
        cdef const char *start = content
        cdef size_t size = len(content)
        cdef int file = self.open_file(path, 0 if position else O_CREAT | O_TRUNC)
        cdef int64_t result
        with nogil:
            result = self.table.truncate(&self.mount, file, position)
            if result >= 0:
                result = self.table.pwrite(&self.mount, file, start, size, position)
            self.table.close(&self.mount, file)
        check(<int> min(result, 0), path)

    def sync(self, str path):
        cdef int file = self.open_file(path, 0)
        cdef int result
        with nogil:
            result = self.table.sync(&self.mount, file)
            self.table.close(&self.mount, file)
        check(result, path)

    def size(self, str path):
        cdef int file = self.open_file(path, 0)
        cdef int64_t size = self.size_of(file)
        with nogil:
            self.table.close(&self.mount, file)
        check(<int> min(size, 0), path)
        return size

    def rename(self, str old, str new):
        check(self.change(NAME_RENAME, old, new), old)

    def unlink(self, str path):
        if self.is_directory(path):
            check(-EISDIR, path)
        check(self.change(NAME_UNLINK, path, ""), path)

    def remove_directory(self, str path):
        if self.list(path):
            check(-ENOTEMPTY, path)
        check(self.change(NAME_UNLINK, path, ""), path)

    def sync_directory(self, str path):
        check(self.change(NAME_SYNC, path, ""), path)

    def make_directories(self, str path):
        cdef int result
        head = os.path.dirname(path)
        if head not in ("", "/", path):
            self.make_directories(head)
        result = self.change(NAME_MAKE, path, "")
        if result == 0:
            result = self.change(NAME_SYNC, head or "/", "")
        check(0 if result == -EEXIST else result, path)

    def list(self, str path):
        cdef bytes prefix = path.encode() + b"/"
        cdef const char *start = prefix
        cdef size_t size = len(prefix)
        cdef char *names = NULL
        cdef int64_t names_size
        if not self.is_directory(path):
            check(-ENOENT, path)
        with nogil:
            names_size = names_below(&self.disk, start, size, &names)
        try:
            check(<int> min(names_size, 0), path)
            return [name.decode() for name in names[:names_size].split(b"\0") if name]
        finally:
            free(names)

    def list_directories(self, str path):
        return [name for name in self.list(path) if self.is_directory(f"{path}/{name}")]

    def is_directory(self, str path):
        return self.find(path) == DIRECTORY

    def exists(self, str path):
        return self.find(path) != NOTHING

    cdef int find(self, str path) except -1:
        """Returns what the path names: NOTHING, FILE or DIRECTORY."""
        cdef bytes encoded = path.encode()
        cdef const char *name = encoded
        cdef Inode *inode
        cdef int found = NOTHING
        with nogil:
            mutex_lock(&self.disk.lock)
            inode = store_find(&self.disk.store, name)
            if inode != NULL:
                found = DIRECTORY if inode.directory else FILE
            mutex_unlock(&self.disk.lock)
        return found

    def lock(self, str path):
        if path in self.locked:
            raise BlockingIOError(errors.EAGAIN, "locked by this process", path)
        self.locked.add(path)
        return HeldLock(self.locked, path)


class HeldLock:
    """The lock on a path. `close` releases the lock."""

    def __init__(self, locked, path):
        self._locked = locked
        self._path = path

    def close(self):
        self._locked.discard(self._path)


cdef int kind_number(str kind) except -1:
    if kind not in FAULT_KINDS:
        raise ValueError(f"a disk has operations of the kinds {', '.join(FAULT_KINDS)}, not {kind!r}")
    return FAULT_KINDS.index(kind)


cdef int check(int result, path) except -1:
    if result < 0:
        raise OSError(-result, os.strerror(-result), path)
    return result
