"""The simulated disk. Contract in simulated_disk.pxd."""

cimport cython
from libc.errno cimport EAGAIN, EBADF, EEXIST, EIO, EISDIR, ENOENT, ENOMEM, ENOSPC, ENOTEMPTY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset, strchr, strcpy, strlen, strncmp

from kafkacore._fast.base.atomics cimport load64, store64
from kafkacore._fast.world.environment cimport Environment, ManualClock
from kafkacore._fast.world.fault_kinds cimport FAULT_NAMES, FAULT_READ, FAULT_SYNC, FAULT_WRITE
from kafkacore._fast.world.simulated_store cimport (
    inode_release, inode_sync, inode_truncate, inode_write, store_cut, store_find, store_free, store_link, store_rename,
    store_sync_names, store_unlink,
)
from kafkacore._fast.base.lock_order cimport RANK_SIMULATED_DISK
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock

import errno as errors
import os

from kafkacore._fast.world.fault_disk import FAULT_KINDS

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_EXCL, O_TRUNC

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)

cdef int64_t UNLIMITED = 0x7FFFFFFFFFFFFFFF


# --- checks before every operation, under the lock ---

cdef int begin(SimDisk *disk, int kind, bint *cut) noexcept nogil:
    """0, or the ordered error. `cut`: the power is cut during this operation."""
    cdef Fault *fault = &disk.faults[kind]
    cut[0] = False
    if disk.dead:
        return -EIO
    if kind != FAULT_READ:
        # Another thread may have passed the number before it was set.
        cut[0] = 0 <= disk.cut_at <= disk.operations
        disk.operations += 1
    if fault.error:
        if fault.after <= 0:
            return -fault.error
        fault.after -= 1
    return 0


cdef int end(SimDisk *disk, int result, bint cut) noexcept nogil:
    if cut:
        disk.dead = True
        return -EIO
    return result


cdef void enter(SimDisk *disk) noexcept nogil:
    cdef int64_t delay_us = load64(&disk.delay_us)
    if delay_us > 0:
        usleep(<unsigned int> delay_us)
    mutex_lock(&disk.lock)


cdef Inode *inode_of(SimDisk *disk, int file) noexcept nogil:
    """The inode; NULL for a handle that is closed or older than the last cut."""
    if file < 0 or file >= disk.handle_count or disk.handles[file].life != disk.life:
        return NULL
    return disk.handles[file].inode


# --- the table of functions ---

cdef int take_handle(SimDisk *disk, Inode *inode) noexcept nogil:
    cdef Handle *handles
    cdef int32_t i
    for i in range(disk.handle_count):
        if disk.handles[i].inode == NULL:
            break
    else:
        i = disk.handle_count
        handles = <Handle *> realloc(disk.handles, (i + 1) * sizeof(Handle))
        if handles == NULL:
            return -ENOMEM
        disk.handles = handles
        disk.handle_count += 1
    inode.refs += 1
    disk.handles[i].inode = inode
    disk.handles[i].life = disk.life
    return i


cdef int open_locked(SimDisk *disk, const char *path, int flags) noexcept nogil:
    cdef Inode *inode = store_find(&disk.store, path)
    cdef bint cut
    cdef int result = begin(disk, FAULT_NAMES if flags & (O_CREAT | O_TRUNC) else FAULT_READ, &cut)
    if result < 0:
        return result
    if inode == NULL and not flags & O_CREAT:
        return end(disk, -ENOENT, cut)
    if inode != NULL and inode.directory:
        return end(disk, -EISDIR, cut)
    if inode != NULL and flags & O_CREAT and flags & O_EXCL:
        return end(disk, -EEXIST, cut)
    if inode == NULL:
        result = store_link(&disk.store, path, False, &inode)
    elif flags & O_TRUNC and inode.size:
        result = inode_truncate(&disk.store, inode, 0)
    if result == 0:
        result = end(disk, 0, cut)
    return result if result < 0 else take_handle(disk, inode)


cdef int sim_open(void *self, const char *path, int flags, int mode) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef int result
    enter(disk)
    result = open_locked(disk, path, flags)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_close(void *self, int file) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef int result = -EBADF
    mutex_lock(&disk.lock)
    if 0 <= file < disk.handle_count and disk.handles[file].inode != NULL:
        inode_release(disk.handles[file].inode)
        disk.handles[file].inode = NULL
        result = 0
    mutex_unlock(&disk.lock)
    return result


cdef int64_t read_locked(SimDisk *disk, int file, void *into, size_t size, int64_t offset, bint cached) noexcept nogil:
    cdef Inode *inode = inode_of(disk, file)
    cdef bint cut
    cdef int64_t count
    cdef int result = begin(disk, FAULT_READ, &cut)
    if result < 0:
        return result
    if inode == NULL:
        return -EIO
    if cached and disk.cold and not inode.warm:
        return -EAGAIN
    inode.warm = True
    count = inode.size - offset
    if count <= 0:
        return 0
    if count > <int64_t> size:
        count = <int64_t> size
    memcpy(into, inode.data + offset, <size_t> count)
    return count


cdef int64_t sim_pread(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef int64_t result
    enter(disk)
    result = read_locked(disk, file, into, size, offset, False)
    mutex_unlock(&disk.lock)
    return result


cdef int64_t sim_pread_cached(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef int64_t result
    mutex_lock(&disk.lock)
    result = read_locked(disk, file, into, size, offset, True)
    mutex_unlock(&disk.lock)
    return result


cdef int64_t write_locked(SimDisk *disk, int file, const uint8_t *data, size_t size, int64_t offset) noexcept nogil:
    cdef Inode *inode = inode_of(disk, file)
    cdef int64_t room
    cdef bint cut
    cdef int result = begin(disk, FAULT_WRITE, &cut)
    if result < 0:
        return result
    if inode == NULL:
        return -EIO
    room = disk.capacity_bytes - disk.store.bytes + (inode.size - offset if inode.size > offset else 0)
    if <int64_t> size > room:
        # A full disk writes the part that fits; the caller must not rely on it.
        inode_write(&disk.store, inode, data, room if room > 0 else 0, offset)
        return end(disk, -ENOSPC, cut)
    result = end(disk, inode_write(&disk.store, inode, data, <int64_t> size, offset), cut)
    return result if result < 0 else <int64_t> size


cdef int64_t sim_pwrite(void *self, int file, const void *data, size_t size, int64_t offset) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef int64_t result
    enter(disk)
    result = write_locked(disk, file, <const uint8_t *> data, size, offset)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_sync(void *self, int file) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef Inode *inode
    cdef bint cut
    cdef int result
    enter(disk)
    inode = inode_of(disk, file)
    result = begin(disk, FAULT_SYNC, &cut)
    if result == 0 and inode == NULL:
        result = -EIO
    if result == 0 and not cut:
        result = inode_sync(inode)
    result = end(disk, result, cut)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_truncate(void *self, int file, int64_t size) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef Inode *inode
    cdef bint cut
    cdef int result
    enter(disk)
    inode = inode_of(disk, file)
    result = begin(disk, FAULT_WRITE, &cut)
    if result == 0:
        result = inode_truncate(&disk.store, inode, size) if inode != NULL else -EIO
    result = end(disk, result, cut)
    mutex_unlock(&disk.lock)
    return result


cdef int64_t sim_size(void *self, int file) noexcept nogil:
    cdef SimDisk *disk = <SimDisk *> self
    cdef Inode *inode
    cdef int64_t result
    mutex_lock(&disk.lock)
    inode = inode_of(disk, file)
    result = -EIO if inode == NULL or disk.dead else inode.size
    mutex_unlock(&disk.lock)
    return result


cdef int change_names(SimDisk *disk, int kind, const char *path, const char *other) noexcept nogil:
    cdef Inode *inode
    cdef bint cut
    cdef int result
    enter(disk)
    result = begin(disk, FAULT_NAMES, &cut)
    if result == 0 and kind == RENAME:
        result = store_rename(&disk.store, path, other)
    elif result == 0 and kind == UNLINK:
        result = store_unlink(&disk.store, path)
    elif result == 0 and kind == MAKE:
        result = -EEXIST if store_find(&disk.store, path) != NULL else store_link(&disk.store, path, True, &inode)
    elif result == 0 and not cut:
        result = store_sync_names(&disk.store, path)
    result = end(disk, result, cut)
    mutex_unlock(&disk.lock)
    return result


cdef enum:
    RENAME = 0
    UNLINK = 1
    MAKE = 2
    SYNC = 3

cdef enum:
    NOTHING = 0
    FILE = 1
    DIRECTORY = 2


cdef int sim_rename(void *self, const char *old, const char *new) noexcept nogil:
    return change_names(<SimDisk *> self, RENAME, old, new)


cdef int sim_unlink(void *self, const char *path) noexcept nogil:
    return change_names(<SimDisk *> self, UNLINK, path, NULL)


cdef int sim_make_directory(void *self, const char *path) noexcept nogil:
    return change_names(<SimDisk *> self, MAKE, path, NULL)


cdef int sim_sync_directory(void *self, const char *path) noexcept nogil:
    return change_names(<SimDisk *> self, SYNC, path, NULL)


cdef int sim_want(void *self, int file, int64_t offset, size_t size) noexcept nogil:
    return 0


cdef int sim_descriptor(void *self, int file) noexcept nogil:
    return -1


cdef int64_t names_below(SimDisk *disk, const char *prefix, size_t size, char **names) noexcept nogil:
    """Copies the names directly below `prefix`, each with a null byte at its end. Returns their bytes, or -ENOMEM."""
    cdef const char *name
    cdef int64_t room = 1
    cdef int64_t used = 0
    cdef int i
    mutex_lock(&disk.lock)
    for i in range(disk.store.now.count):
        room += <int64_t> strlen(disk.store.now.items[i].path) + 1
    names[0] = <char *> malloc(<size_t> room)
    for i in range(disk.store.now.count if names[0] != NULL else 0):
        name = disk.store.now.items[i].path
        if strncmp(name, prefix, size) == 0 and strchr(name + size, c"/") == NULL:
            strcpy(names[0] + used, name + size)
            used += <int64_t> strlen(name + size) + 1
    mutex_unlock(&disk.lock)
    return used if names[0] != NULL else -ENOMEM


# --- Python: the power switch, and the disk as Files ---

@cython.no_gc
cdef class SimulatedDisk:
    """A disk in memory. `environment` gives native code a world with this disk; the object itself is `Files`.

    Paths are plain names: there is no current directory. Raises OSError as the operating system does.
    """

    def __cinit__(self):
        memset(&self.disk, 0, sizeof(SimDisk))
        mutex_init(&self.disk.lock, RANK_SIMULATED_DISK)
        self.disk.cut_at = -1
        self.disk.capacity_bytes = UNLIMITED
        self.locked = set()
        self.table.self = &self.disk
        self.table.open = sim_open
        self.table.close = sim_close
        self.table.pread = sim_pread
        self.table.pread_cached = sim_pread_cached
        self.table.pwrite = sim_pwrite
        self.table.sync = sim_sync
        self.table.truncate = sim_truncate
        self.table.size = sim_size
        self.table.rename = sim_rename
        self.table.unlink = sim_unlink
        self.table.make_directory = sim_make_directory
        self.table.sync_directory = sim_sync_directory
        self.table.want = sim_want
        self.table.descriptor = sim_descriptor

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.disk.handle_count):
            inode_release(self.disk.handles[i].inode)
        free(self.disk.handles)
        store_free(&self.disk.store)
        mutex_destroy(&self.disk.lock)

    def environment(self, ManualClock clock=None):
        """The real world with this disk and, if given, this clock."""
        cdef Environment made = Environment(clock)
        made.env.disk = self.table
        made.keep = (made.keep, self)
        return made

    # --- the switch ---

    def cut_power_at(self, int64_t operation):
        """Cuts the power during the operation with this number (see `operations`); -1: never."""
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.cut_at = operation
            mutex_unlock(&self.disk.lock)

    def cut_power(self):
        """Cuts the power now: every operation fails until `restart`."""
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.dead = True
            mutex_unlock(&self.disk.lock)

    def restart(self, uint64_t seed=0, bint ordered=True):
        """The power comes back, and the seed decides what is left of everything that was not synced."""
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

    @property
    def operations(self):
        """The number of operations that changed something; `cut_power_at` counts them."""
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

    def fail(self, str kind, int error=errors.EIO, int64_t after=0):
        """Lets operations of a kind (read, write, sync, names) fail after `after` more successes. `error` 0
        ends that."""
        cdef int number = FAULT_KINDS.index(kind)
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.faults[number].error = error
            self.disk.faults[number].after = after
            mutex_unlock(&self.disk.lock)

    def limit(self, capacity_bytes=None):
        """Sets the capacity. A write beyond it writes the part that fits and fails with ENOSPC; None: unlimited."""
        cdef int64_t capacity = UNLIMITED if capacity_bytes is None else capacity_bytes
        with nogil:
            mutex_lock(&self.disk.lock)
            self.disk.capacity_bytes = capacity
            mutex_unlock(&self.disk.lock)

    def slow_down(self, int64_t delay_us):
        """Sets the duration of every operation."""
        store64(&self.disk.delay_us, delay_us)

    def cool(self, bint cold=True):
        """Empties the page cache: a file is in it after its first read."""
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
            file = sim_open(&self.disk, name, flags, 0o644)
        return check(file, path)

    cdef int change(self, int kind, str path, str other) except? -1:
        """0 or minus errno."""
        cdef bytes encoded = path.encode()
        cdef bytes encoded_other = other.encode()
        cdef const char *name = encoded
        cdef const char *other_name = encoded_other
        cdef int result
        with nogil:
            result = change_names(&self.disk, kind, name, other_name)
        return result

    def read(self, str path):
        cdef int file = self.open_file(path, 0)
        cdef int64_t size
        cdef int64_t got
        cdef bytearray into
        cdef char *start
        with nogil:
            size = sim_size(&self.disk, file)
        into = bytearray(max(size, 0))
        start = into
        with nogil:
            got = sim_pread(&self.disk, file, start, <size_t> max(size, 0), 0)
            sim_close(&self.disk, file)
        check(<int> min(got, 0), path)
        return bytes(into[:got])

    def write(self, str path, data):
        cdef bytes content = bytes(data)
        cdef const char *start = content
        cdef size_t size = len(content)
        cdef int file = self.open_file(path, O_CREAT | O_TRUNC)
        cdef int64_t result
        with nogil:
            result = sim_pwrite(&self.disk, file, start, size, 0)
            if result >= 0:
                result = sim_sync(&self.disk, file)
            sim_close(&self.disk, file)
        check(<int> min(result, 0), path)

    def read_part(self, str path, int64_t position, int64_t max_bytes):
        return self.read(path)[position : position + max_bytes]

    def write_part(self, str path, int64_t position, data):
        cdef bytes content = bytes(data)
        cdef const char *start = content
        cdef size_t size = len(content)
        cdef int file = self.open_file(path, 0 if position else O_CREAT | O_TRUNC)
        cdef int64_t result
        with nogil:
            result = sim_truncate(&self.disk, file, position)
            if result >= 0:
                result = sim_pwrite(&self.disk, file, start, size, position)
            sim_close(&self.disk, file)
        check(<int> min(result, 0), path)

    def sync(self, str path):
        cdef int file = self.open_file(path, 0)
        cdef int result
        with nogil:
            result = sim_sync(&self.disk, file)
            sim_close(&self.disk, file)
        check(result, path)

    def size(self, str path):
        return len(self.read(path))

    def rename(self, str old, str new):
        check(self.change(RENAME, old, new), old)

    def unlink(self, str path):
        if self.is_directory(path):
            check(-EISDIR, path)
        check(self.change(UNLINK, path, ""), path)

    def remove_directory(self, str path):
        if self.list(path):
            check(-ENOTEMPTY, path)
        check(self.change(UNLINK, path, ""), path)

    def sync_directory(self, str path):
        check(self.change(SYNC, path, ""), path)

    def make_directories(self, str path):
        cdef int result
        head = os.path.dirname(path)
        if head not in ("", "/", path):
            self.make_directories(head)
        result = self.change(MAKE, path, "")
        if result == 0:
            result = self.change(SYNC, head or "/", "")
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
            return [name.decode() for name in names[:names_size].split(b"\0")[:-1]]
        finally:
            free(names)

    def list_directories(self, str path):
        return [name for name in self.list(path) if self.is_directory(f"{path}/{name}")]

    def is_directory(self, str path):
        return self.find(path) == DIRECTORY

    def exists(self, str path):
        return self.find(path) != NOTHING

    cdef int find(self, str path) except -1:
        """NOTHING, FILE or DIRECTORY."""
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

    def lock(self, str path, *, lent=False):
        if path in self.locked:
            raise BlockingIOError(errors.EAGAIN, "locked by this process", path)
        self.locked.add(path)
        return HeldLock(self.locked, path)


class HeldLock:
    """The lock on a path; `close` releases it."""

    def __init__(self, locked, path):
        self._locked = locked
        self._path = path

    def lend(self):
        """Does nothing: no other process can see this disk."""

    def close(self):
        self._locked.discard(self._path)


cdef int check(int result, path) except -1:
    if result < 0:
        raise OSError(-result, os.strerror(-result), path)
    return result
