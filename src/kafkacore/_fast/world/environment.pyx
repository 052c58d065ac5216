"""Implements the real environment: the clocks of the system, files through pread and pwrite, and TCP through recvmsg,
sendmsg and sendfile. Also implements clocks for tests."""

cimport cython
from libc.errno cimport EAGAIN, EINTR, EIO, ENOMEM, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.stddef cimport size_t
from libc.string cimport memcpy, strcmp, strlen

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.world.agenda cimport SimulatedAgenda, agenda_draw

cdef extern from * nogil:
    """
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <sys/sendfile.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/uio.h>
    #include <sys/vfs.h>
    #include <time.h>
    #include <unistd.h>

    static inline int64_t kc_clock_ns(clockid_t which) {
        struct timespec now;
        clock_gettime(which, &now);
        return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
    }
    static inline int64_t kc_read_nowait(int file, void *into, size_t size, int64_t offset) {
        struct iovec part = {into, size};
        return preadv2(file, &part, 1, offset, RWF_NOWAIT);
    }
    static inline int kc_is_memory_file(int file) {  /* On tmpfs and ramfs, a read never waits for a device */
        struct statfs about;
        return fstatfs(file, &about) == 0 && (about.f_type == 0x01021994 || about.f_type == 0x858458f6L);
    }
    static inline int64_t kc_file_size(int file) {
        struct stat about;
        return fstat(file, &about) ? -errno : (int64_t) about.st_size;
    }
    static inline struct dirent *kc_next_entry(DIR *listing) {
        errno = 0;  /* readdir returns NULL both at the end and after an error; only errno shows which */
        return readdir(listing);
    }
    static inline int kc_is_directory(const char *path) {
        struct stat about;
        return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    }
    static inline int64_t kc_send_parts(int handle, const struct iovec *parts, int count, int more) {
        struct msghdr message = {0};
        message.msg_iov = (struct iovec *) parts;
        message.msg_iovlen = count;
        return sendmsg(handle, &message, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    }
    """
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME
    int O_RDONLY
    int O_DIRECTORY
    int O_CLOEXEC
    int MSG_DONTWAIT
    int POSIX_FADV_WILLNEED
    int64_t kc_clock_ns(int which)
    int64_t kc_read_nowait(int file, void *into, size_t size, int64_t offset)
    bint kc_is_memory_file(int file)
    int64_t kc_file_size(int file)
    bint kc_is_directory(const char *path)
    ctypedef struct Listing "DIR":
        pass
    ctypedef struct Entry "struct dirent":
        char d_name[256]
        unsigned char d_type
    int DT_DIR, DT_LNK, DT_UNKNOWN
    Listing *c_opendir "opendir"(const char *path)
    Entry *kc_next_entry(Listing *listing)
    int c_closedir "closedir"(Listing *listing)
    int64_t kc_send_parts(int handle, const IoVec *parts, int count, bint more)
    int64_t c_recv "recv"(int handle, void *into, size_t size, int flags)
    int64_t c_sendfile "sendfile"(int out, int file, int64_t *offset, size_t size)
    int c_open "open"(const char *path, int flags, int mode)
    int c_close "close"(int file)
    int64_t c_pread "pread"(int file, void *into, size_t size, int64_t offset)
    int64_t c_pwrite "pwrite"(int file, const void *data, size_t size, int64_t offset)
    int c_fsync "fsync"(int file)
    int c_fdatasync "fdatasync"(int file)
    int c_ftruncate "ftruncate"(int file, int64_t size)
    int c_rename "rename"(const char *old, const char *new)
    int c_unlink "unlink"(const char *path)
    int c_mkdir "mkdir"(const char *path, int mode)
    int FALLOC_FL_KEEP_SIZE
    int c_fallocate "fallocate"(int file, int mode, int64_t offset, int64_t size)
    int c_fadvise "posix_fadvise"(int file, int64_t offset, int64_t size, int advice)

cdef extern from "Python.h":
    object PyUnicode_DecodeFSDefault(const char *text)

import os

cdef enum:
    COPY_BYTES = 65536  # bytes that send_file copies at once if it cannot use sendfile(2)
    NAMES_BYTES = 4096  # enough for the names of a small directory


# Clock

cdef int64_t real_monotonic_ns(void *self) noexcept nogil:
    return kc_clock_ns(CLOCK_MONOTONIC)


cdef int64_t real_wall_ms(void *self) noexcept nogil:
    return kc_clock_ns(CLOCK_REALTIME) // 1000000


# Disk

cdef int real_open(void *self, const char *path, int flags, int mode) noexcept nogil:
    cdef int file = c_open(path, flags | O_CLOEXEC, mode)
    return file if file >= 0 else -errno


cdef int real_close(void *self, int file) noexcept nogil:
    return 0 if c_close(file) == 0 else -errno


cdef int64_t real_pread(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef size_t done = 0
    cdef int64_t n
    while done < size:
        n = c_pread(file, <uint8_t *> into + done, size - done, offset + <int64_t> done)
        if n < 0:
            if errno == EINTR:
                continue
            return -errno
        if n == 0:
            break
        done += <size_t> n
    return <int64_t> done


cdef int64_t real_pread_cached(void *self, int file, void *into, size_t size, int64_t offset) noexcept nogil:
    cdef size_t done = 0
    cdef int64_t n
    while done < size:
        n = kc_read_nowait(file, <uint8_t *> into + done, size - done, offset + <int64_t> done)
        if n < 0:
            if errno == EINTR:
                continue
            if errno == EOPNOTSUPP:  # the file system does not support RWF_NOWAIT
                return real_pread(self, file, into, size, offset) if kc_is_memory_file(file) else -EAGAIN
            return -errno
        if n == 0:
            break
        done += <size_t> n
    return <int64_t> done


cdef int64_t real_pwrite(void *self, int file, const void *data, size_t size, int64_t offset) noexcept nogil:
    cdef size_t done = 0
    cdef int64_t n
    while done < size:
        n = c_pwrite(file, <const uint8_t *> data + done, size - done, offset + <int64_t> done)
        if n < 0:
            if errno == EINTR:
                continue
            return -errno
        if n == 0:
            return -EIO
        done += <size_t> n
    return <int64_t> done


cdef int real_sync(void *self, int file) noexcept nogil:
    return 0 if c_fdatasync(file) == 0 else -errno


cdef int real_truncate(void *self, int file, int64_t size) noexcept nogil:
    return 0 if c_ftruncate(file, size) == 0 else -errno


cdef int64_t real_size(void *self, int file) noexcept nogil:
    return kc_file_size(file)


cdef int real_rename(void *self, const char *old, const char *new) noexcept nogil:
    return 0 if c_rename(old, new) == 0 else -errno


cdef int real_unlink(void *self, const char *path) noexcept nogil:
    return 0 if c_unlink(path) == 0 else -errno


cdef int real_make_directory(void *self, const char *path) noexcept nogil:
    return 0 if c_mkdir(path, 0o755) == 0 else -errno


cdef int real_sync_directory(void *self, const char *path) noexcept nogil:
    cdef int result = 0
    cdef int file = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
    if file < 0:
        return -errno
    if c_fsync(file) != 0:
        result = -errno
    c_close(file)
    return result


cdef int real_want(void *self, int file, int64_t offset, size_t size) noexcept nogil:
    if offset < kc_file_size(file):
        return -c_fadvise(file, offset, <int64_t> size, POSIX_FADV_WILLNEED)
    if kc_is_memory_file(file):
        return -EOPNOTSUPP  # a file in memory needs no preallocated blocks
    return 0 if c_fallocate(file, FALLOC_FL_KEEP_SIZE, offset, <int64_t> size) == 0 else -errno


cdef int real_descriptor(void *self, int file) noexcept nogil:
    return file


# Names in a directory

ctypedef struct Names:
    char *bytes           # each name ends with a null byte
    size_t size
    size_t room


cdef int add_name(Names *names, const char *name) noexcept nogil:
    cdef size_t size = strlen(name) + 1
    cdef char *larger
    if names.size + size > names.room:
        larger = <char *> realloc(names.bytes, names.room * 2 + size)
        if larger == NULL:
            return -ENOMEM
        names.bytes = larger
        names.room = names.room * 2 + size
    memcpy(names.bytes + names.size, name, size)
    names.size += size
    return 0


cdef bint leads_to_directory(const char *path, const Entry *entry) noexcept nogil:
    cdef size_t size = strlen(path)
    cdef char *whole
    cdef bint found
    if entry.d_type != DT_LNK and entry.d_type != DT_UNKNOWN:
        return entry.d_type == DT_DIR
    whole = <char *> malloc(size + strlen(entry.d_name) + 2)
    if whole == NULL:
        return True  # opening this name would also fail, because no memory is left
    memcpy(whole, path, size)
    whole[size] = c"/"
    memcpy(whole + size + 1, entry.d_name, strlen(entry.d_name) + 1)
    found = kc_is_directory(whole)
    free(whole)
    return found


cdef int read_names(const char *path, bint only_directories, Names *names) noexcept nogil:
    cdef Listing *listing = c_opendir(path)
    cdef Entry *entry
    cdef int result = 0
    if listing == NULL:
        return -errno
    while result == 0:
        entry = kc_next_entry(listing)
        if entry == NULL:
            result = -errno
            break
        if strcmp(entry.d_name, b".") == 0 or strcmp(entry.d_name, b"..") == 0:
            continue
        if not only_directories or leads_to_directory(path, entry):
            result = add_name(names, entry.d_name)
    c_closedir(listing)
    return result


cdef list sorted_names(const Names *names):
    cdef list found = []
    cdef size_t at = 0
    while at < names.size:
        found.append(PyUnicode_DecodeFSDefault(names.bytes + at))
        at += strlen(names.bytes + at) + 1
    found.sort()
    return found


def list_directory(str path not None, bint only_directories=False):
    return list_each((path,), only_directories)[0]


def list_each(paths not None, bint only_directories=False):
    cdef list encoded = [os.fsencode(<str?> path) for path in paths]
    cdef Py_ssize_t count = len(encoded)
    cdef Py_ssize_t i
    cdef Py_ssize_t read = 0
    cdef const char **texts = <const char **> calloc(count + 1, sizeof(char *))
    cdef Names *names = <Names *> calloc(count + 1, sizeof(Names))
    cdef int result = 0
    try:
        if texts == NULL or names == NULL:
            raise MemoryError
        for i in range(count):
            if b"\0" in <bytes> encoded[i]:
                raise ValueError(f"a null byte in the path {os.fsdecode(encoded[i])!r}")
            texts[i] = <bytes> encoded[i]
            names[i].bytes = <char *> malloc(NAMES_BYTES)
            names[i].room = NAMES_BYTES
            if names[i].bytes == NULL:
                raise MemoryError
        with nogil:
            while read < count and result == 0:
                result = read_names(texts[read], only_directories, &names[read])
                read += 1
        if result < 0:
            raise OSError(-result, os.strerror(-result), os.fsdecode(encoded[read - 1]))
        return [sorted_names(&names[i]) for i in range(count)]
    finally:
        for i in range(count if names != NULL else 0):
            free(names[i].bytes)
        free(names)
        free(texts)


# Transport: TCP

cdef int64_t tcp_recv(void *self, int handle, void *into, size_t size) noexcept nogil:
    cdef int64_t n
    while True:
        n = c_recv(handle, into, size, MSG_DONTWAIT)
        if n >= 0:
            return n
        if errno != EINTR:
            return -errno


cdef int64_t tcp_send(void *self, int handle, const IoVec *parts, int count, bint more) noexcept nogil:
    cdef int64_t n
    while True:
        n = kc_send_parts(handle, parts, count, more)
        if n >= 0:
            return n
        if errno != EINTR:
            return -errno


cdef int64_t tcp_send_file(
    void *self, int handle, const Disk *disk, int file, int64_t offset, size_t size
) noexcept nogil:
    cdef int64_t n
    cdef int64_t at = offset
    cdef int descriptor = disk.descriptor(disk.self, file)
    if descriptor < 0:
        return tcp_copy_file(handle, disk, file, offset, size)
    while True:
        n = c_sendfile(handle, descriptor, &at, size)
        if n >= 0:
            return n
        if errno != EINTR:
            return -errno


cdef int64_t tcp_copy_file(int handle, const Disk *disk, int file, int64_t offset, size_t size) noexcept nogil:
    """Sends at most COPY_BYTES of the file by copying them. If the socket does not accept all bytes, the next call
    reads the remaining bytes again."""
    cdef IoVec part
    cdef int64_t n
    cdef uint8_t *block = <uint8_t *> malloc(COPY_BYTES)
    if block == NULL:
        return -EAGAIN
    n = disk.pread(disk.self, file, block, size if size < COPY_BYTES else COPY_BYTES, offset)
    if n > 0:
        part.iov_base = block
        part.iov_len = <size_t> n
        n = tcp_send(NULL, handle, &part, 1, <size_t> n < size)
    free(block)
    return n


cdef int64_t tcp_pending(void *self, int handle) noexcept nogil:
    return 0


cdef int tcp_want(void *self, int handle) noexcept nogil:
    return 0


cdef void tcp_close(void *self, int handle) noexcept nogil:
    c_close(handle)


# The operations of the real disk. This table is static, because a log may be freed after the last environment.
cdef Disk the_real_disk


cdef const Disk *disk_that_lasts(const Disk *disk) noexcept nogil:
    return &the_real_disk if disk.open == real_open else disk


cdef void env_real(Env *env) noexcept nogil:
    env.clock.self = NULL
    env.clock.monotonic_ns = real_monotonic_ns
    env.clock.wall_ms = real_wall_ms
    env.disk.self = NULL
    env.disk.open = real_open
    env.disk.close = real_close
    env.disk.pread = real_pread
    env.disk.pread_cached = real_pread_cached
    env.disk.pwrite = real_pwrite
    env.disk.sync = real_sync
    env.disk.truncate = real_truncate
    env.disk.size = real_size
    env.disk.rename = real_rename
    env.disk.unlink = real_unlink
    env.disk.make_directory = real_make_directory
    env.disk.sync_directory = real_sync_directory
    env.disk.want = real_want
    env.disk.descriptor = real_descriptor
    env.transport.self = NULL
    env.transport.recv = tcp_recv
    env.transport.send = tcp_send
    env.transport.send_file = tcp_send_file
    env.transport.pending = tcp_pending
    env.transport.want = tcp_want
    env.transport.close = tcp_close
    env.agenda = NULL
    env.owner = 0


cdef Env first
env_real(&first)
the_real_disk = first.disk

# Clocks that a test can move

cdef int64_t manual_monotonic_ns(void *self) noexcept nogil:
    return load64(&(<ManualTime *> self).monotonic_ns)


cdef int64_t manual_wall_ms(void *self) noexcept nogil:
    return load64(&(<ManualTime *> self).wall_ns) // 1000000


cdef int64_t running_monotonic_ns(void *self) noexcept nogil:
    return load64(&(<ManualTime *> self).monotonic_ns) + kc_clock_ns(CLOCK_MONOTONIC)


cdef int64_t running_wall_ms(void *self) noexcept nogil:
    return (load64(&(<ManualTime *> self).wall_ns) + kc_clock_ns(CLOCK_REALTIME)) // 1000000


cdef class ManualClock:
    """A clock that changes only when a test moves it. Any thread may move and read the clock."""

    def __cinit__(self, int64_t wall_ms=1_700_000_000_000, int64_t monotonic_ns=1_000_000_000):
        self.time.wall_ns = wall_ms * 1000000
        self.time.monotonic_ns = monotonic_ns

    def advance_ms(self, ms: float) -> None:
        """Moves the monotonic clock and the wall clock forward by `ms` milliseconds."""
        self.advance_ns(<int64_t> (ms * 1e6))

    def advance_ns(self, int64_t ns) -> None:
        """Moves the monotonic clock and the wall clock forward by `ns` nanoseconds."""
        if ns < 0:
            raise ValueError(f"a clock goes forward only, not by {ns} ns; step_wall_ms moves the wall clock back")
        add64(&self.time.monotonic_ns, ns)
        add64(&self.time.wall_ns, ns)

    def step_wall_ms(self, int64_t ms) -> None:
        """Moves only the wall clock, as an operator or NTP does. A negative `ms` moves it backwards."""
        add64(&self.time.wall_ns, ms * 1000000)

    def monotonic_ns(self) -> int:
        return manual_monotonic_ns(&self.time)

    def wall_ms(self) -> int:
        return manual_wall_ms(&self.time)


cdef class RunningClock(ManualClock):
    """A clock that runs at the speed of the real clock. It is ahead of the real clock by the sum of all moves."""

    def __init__(self):
        self.time.wall_ns = 0
        self.time.monotonic_ns = 0

    def monotonic_ns(self) -> int:
        return running_monotonic_ns(&self.time)

    def wall_ms(self) -> int:
        return running_wall_ms(&self.time)


# Native code uses the `Environment` until it is freed, so the collector must not clear its fields, even in a cycle.
@cython.no_gc_clear
cdef class Environment:

    def __cinit__(self, clock: ManualClock | None = None, agenda: SimulatedAgenda | None = None, seed=None):
        env_real(&self.env)
        if agenda is not None:
            self.join(agenda, seed)
        elif seed is not None:
            raise ValueError("the real world has no seed: give the environment an agenda too")
        if clock is not None:
            self.env.clock.self = &(<ManualClock> clock).time
            self.env.clock.monotonic_ns = manual_monotonic_ns
            self.env.clock.wall_ms = manual_wall_ms
            if isinstance(clock, RunningClock):
                self.env.clock.monotonic_ns = running_monotonic_ns
                self.env.clock.wall_ms = running_wall_ms
        self.keep = (clock, agenda)

    cdef int join(self, agenda, seed) except -1:
        cdef SimulatedAgenda joined = agenda
        self.env.agenda = joined.agenda
        joined.agenda.owners += 1
        self.env.owner = joined.agenda.owners
        self.random = agenda_draw(&joined.agenda.random) if seed is None else <uint64_t> (seed & 0xFFFFFFFFFFFFFFFF)
        return 0

    @property
    def is_simulated(self):
        return self.env.agenda != NULL

    @property
    def owner(self):
        return self.env.owner

    def random_bytes(self, Py_ssize_t count) -> bytes:
        cdef bytearray made = bytearray()
        if self.env.agenda == NULL:
            return os.urandom(count)
        while len(made) < count:
            made += agenda_draw(&self.random).to_bytes(8, "little")
        return bytes(made[:count])

    def monotonic_ns(self) -> int:
        """Returns the time of the environment's monotonic clock, in ns."""
        return self.env.clock.monotonic_ns(self.env.clock.self)

    def wall_ms(self) -> int:
        """Returns the time of the environment's wall clock, in milliseconds since 1970."""
        return self.env.clock.wall_ms(self.env.clock.self)
