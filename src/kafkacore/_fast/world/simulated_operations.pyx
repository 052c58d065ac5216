"""Implements the operations of a simulated disk. simulated_operations.pxd has the contract."""

from libc.errno cimport EAGAIN, EBADF, EEXIST, EIO, EISDIR, ENOENT, ENOMEM, ENOSPC
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport malloc, realloc
from libc.string cimport memcpy, strchr, strcpy, strlen, strncmp

from kafkacore._fast.base.atomics cimport load64
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.world.agenda cimport agenda_draw, agenda_pause
from kafkacore._fast.world.fault_kinds cimport FAULT_NAMES, FAULT_READ, FAULT_SYNC, FAULT_WRITE
from kafkacore._fast.world.simulated_store cimport (
    inode_fail_sync, inode_flip, inode_release, inode_sync, inode_truncate, inode_write, store_find, store_link,
    store_rename, store_sync_names, store_unlink,
)

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT, O_EXCL, O_TRUNC

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)


# --- before every operation ---

cdef void enter(Mount *mount, int kind) noexcept nogil:
    """Lets the duration of the operation pass, and then takes the lock."""
    cdef SimDisk *disk = mount.disk
    cdef int64_t ns = load64(&disk.delay_us) * 1000
    cdef const Pace *pace = &disk.paces[kind]
    cdef bint paused
    mutex_lock(&disk.lock)  # in the real world, several threads use the disk
    if pace.most_ns > 0:
        ns += pace.least_ns + <int64_t> (agenda_draw(&disk.random) % <uint64_t> (pace.most_ns - pace.least_ns + 1))
    if ns == 0 or is_dead(mount):
        return
    mutex_unlock(&disk.lock)
    paused = agenda_pause(ns)
    if not paused and not mount.simulated:
        usleep(<unsigned int> (ns // 1000))
    mutex_lock(&disk.lock)
    if not paused and mount.simulated:
        disk.spent_ns += ns


cdef inline bint is_dead(const Mount *mount) noexcept nogil:
    return mount.disk.dead or (mount.life != ANY_LIFE and mount.life != mount.disk.life)


cdef int begin(Mount *mount, int kind, bint *cut) noexcept nogil:
    """Begins an operation. Call this with the lock held. Returns 0, or the error that a test has ordered. Sets `cut` if
    the power is cut during this operation."""
    cdef SimDisk *disk = mount.disk
    cdef Fault *fault = &disk.faults[kind]
    cut[0] = False
    if is_dead(mount):
        return -EIO
    if kind != FAULT_READ:
        # The power is cut even if `operations` is already above `cut_at`. Another thread may have increased
        # `operations` before a test set `cut_at`.
        cut[0] = 0 <= disk.cut_at <= disk.operations
        disk.operations += 1
    if fault.error:
        if fault.after <= 0:
            return -fault.error if agenda_draw(&disk.random) <= fault.below else 0
        fault.after -= 1
    return 0


cdef int end(SimDisk *disk, int result, bint cut) noexcept nogil:
    if cut:
        disk.dead = True
        return -EIO
    return result


cdef Inode *inode_of(SimDisk *disk, int file) noexcept nogil:
    """Returns the inode of a handle. Returns NULL if the handle is closed, or if it was opened before the last power
    cut."""
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


cdef int open_locked(Mount *mount, const char *path, int flags) noexcept nogil:
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode = store_find(&disk.store, path)
    cdef bint cut
    cdef int result = begin(mount, FAULT_NAMES if flags & (O_CREAT | O_TRUNC) else FAULT_READ, &cut)
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
    elif flags & O_TRUNC and inode.now.size:
        result = inode_truncate(&disk.store, inode, 0)
    if result == 0:
        result = end(disk, 0, cut)
    return result if result < 0 else take_handle(disk, inode)


cdef int sim_open(void *self, const char *path, int flags, int mode) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef int result
    enter(mount, FAULT_NAMES if flags & (O_CREAT | O_TRUNC) else FAULT_READ)
    result = open_locked(mount, path, flags)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_close(void *self, int file) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef int result = -EBADF
    mutex_lock(&disk.lock)
    if 0 <= file < disk.handle_count and disk.handles[file].inode != NULL:
        inode_release(disk.handles[file].inode)
        disk.handles[file].inode = NULL
        result = 0
    mutex_unlock(&disk.lock)
    return result


cdef int64_t read_locked(Mount *mount, int file, void *into, size_t size, int64_t offset, bint cached) noexcept nogil:
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode = inode_of(disk, file)
    cdef bint cut
    cdef int64_t count
    cdef uint64_t number
    cdef int result = begin(mount, FAULT_READ, &cut)
    if result < 0:
        return result
    if inode == NULL:
        return -EIO
    if cached and disk.cold and not inode.warm:
        return -EAGAIN
    inode.warm = True
    count = inode.now.size - offset
    if count <= 0:
        return 0
    if count > <int64_t> size:
        count = <int64_t> size
    if disk.rot_below and agenda_draw(&disk.random) < disk.rot_below:
        number = agenda_draw(&disk.random)
        inode_flip(inode, offset + <int64_t> (number // 8 % <uint64_t> count), <int> (number % 8))
    memcpy(into, inode.now.data + offset, <size_t> count)
    return count


cdef int64_t sim_pread(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef int64_t result
    enter(mount, FAULT_READ)
    result = read_locked(mount, file, into, size, offset, False)
    mutex_unlock(&disk.lock)
    return result


cdef int64_t sim_pread_cached(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef int64_t result
    mutex_lock(&disk.lock)
    result = read_locked(mount, file, into, size, offset, True)
    mutex_unlock(&disk.lock)
    return result


cdef int64_t write_locked(Mount *mount, int file, const uint8_t *data, size_t size, int64_t offset) noexcept nogil:
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode = inode_of(disk, file)
    cdef int64_t room
    cdef bint cut
    cdef int result = begin(mount, FAULT_WRITE, &cut)
    if result < 0:
        return result
    if inode == NULL:
        return -EIO
    room = disk.capacity_bytes - disk.store.bytes + (inode.now.size - offset if inode.now.size > offset else 0)
    if <int64_t> size > room:
        # On a full disk, the part that fits is written. The caller must not rely on this part.
        inode_write(&disk.store, inode, data, room if room > 0 else 0, offset)
        return end(disk, -ENOSPC, cut)
    result = end(disk, inode_write(&disk.store, inode, data, <int64_t> size, offset), cut)
    return result if result < 0 else <int64_t> size


cdef int64_t sim_pwrite(void *self, int file, const void *data, size_t size, int64_t offset) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef int64_t result
    enter(mount, FAULT_WRITE)
    result = write_locked(mount, file, <const uint8_t *> data, size, offset)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_sync(void *self, int file) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode
    cdef bint cut
    cdef int64_t until
    cdef int result
    mutex_lock(&disk.lock)
    inode = inode_of(disk, file)
    until = inode.changes if inode != NULL else 0
    mutex_unlock(&disk.lock)
    enter(mount, FAULT_SYNC)
    inode = inode_of(disk, file)
    result = begin(mount, FAULT_SYNC, &cut)
    if inode == NULL:
        result = -EIO
    elif result < 0 and not is_dead(mount):
        inode_fail_sync(inode, until, &disk.random)
    elif result == 0 and not cut:
        result = inode_sync(inode, until)
    result = end(disk, result, cut)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_truncate(void *self, int file, int64_t size) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode
    cdef bint cut
    cdef int result
    enter(mount, FAULT_WRITE)
    inode = inode_of(disk, file)
    result = begin(mount, FAULT_WRITE, &cut)
    if result == 0:
        result = inode_truncate(&disk.store, inode, size) if inode != NULL else -EIO
    result = end(disk, result, cut)
    mutex_unlock(&disk.lock)
    return result


cdef int64_t sim_size(void *self, int file) noexcept nogil:
    cdef Mount *mount = <Mount *> self
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode
    cdef int64_t result
    mutex_lock(&disk.lock)
    inode = inode_of(disk, file)
    result = -EIO if inode == NULL or is_dead(mount) else inode.now.size
    mutex_unlock(&disk.lock)
    return result


cdef int change_names(Mount *mount, NameChange kind, const char *path, const char *other) noexcept nogil:
    cdef SimDisk *disk = mount.disk
    cdef Inode *inode
    cdef bint cut
    cdef int result
    enter(mount, FAULT_NAMES)
    result = begin(mount, FAULT_NAMES, &cut)
    if result == 0 and kind == NAME_RENAME:
        result = store_rename(&disk.store, path, other)
    elif result == 0 and kind == NAME_UNLINK:
        result = store_unlink(&disk.store, path)
    elif result == 0 and kind == NAME_MAKE:
        result = -EEXIST if store_find(&disk.store, path) != NULL else store_link(&disk.store, path, True, &inode)
    elif result == 0 and not cut:
        result = store_sync_names(&disk.store, path)
    result = end(disk, result, cut)
    mutex_unlock(&disk.lock)
    return result


cdef int sim_rename(void *self, const char *old, const char *new) noexcept nogil:
    return change_names(<Mount *> self, NAME_RENAME, old, new)


cdef int sim_unlink(void *self, const char *path) noexcept nogil:
    return change_names(<Mount *> self, NAME_UNLINK, path, NULL)


cdef int sim_make_directory(void *self, const char *path) noexcept nogil:
    return change_names(<Mount *> self, NAME_MAKE, path, NULL)


cdef int sim_sync_directory(void *self, const char *path) noexcept nogil:
    return change_names(<Mount *> self, NAME_SYNC, path, NULL)


cdef int sim_want(void *self, int file, int64_t offset, size_t size) noexcept nogil:
    return 0


cdef int sim_descriptor(void *self, int file) noexcept nogil:
    return -1


cdef int64_t names_below(SimDisk *disk, const char *prefix, size_t size, char **names) noexcept nogil:
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


cdef void simulated_table(Disk *table, Mount *mount) noexcept nogil:
    table.self = mount
    table.open = sim_open
    table.close = sim_close
    table.pread = sim_pread
    table.pread_cached = sim_pread_cached
    table.pwrite = sim_pwrite
    table.sync = sim_sync
    table.truncate = sim_truncate
    table.size = sim_size
    table.rename = sim_rename
    table.unlink = sim_unlink
    table.make_directory = sim_make_directory
    table.sync_directory = sim_sync_directory
    table.want = sim_want
    table.descriptor = sim_descriptor
