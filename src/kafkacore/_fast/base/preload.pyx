"""Shared libraries opened, and memory touched, on a thread of their own, as preload.pyi says."""

from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from kafkacore._fast.base.sync cimport thread_join, thread_start

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    void *dlopen(const char *path, int flags)

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_WRITE  /* Linux 5.14; before that nothing is touched */
    #define MADV_POPULATE_WRITE 23
    #endif
    static void *kc_reserve(size_t size) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? NULL : memory;
    }
    static void kc_touch(void *memory, size_t size) {
        madvise(memory, size, MADV_POPULATE_WRITE);
    }
    """
    void *kc_reserve(size_t size)
    void kc_touch(void *memory, size_t size)
    int munmap(void *memory, size_t size)

cdef extern from "Python.h":
    ctypedef struct PyObjectArenaAllocator:
        void *ctx
        void *(*alloc)(void *ctx, size_t size) noexcept
        void (*free)(void *ctx, void *memory, size_t size) noexcept
    void PyObject_GetArenaAllocator(PyObjectArenaAllocator *allocator)
    void PyObject_SetArenaAllocator(PyObjectArenaAllocator *allocator)

cdef enum:
    TOUCH_BYTES = 128 << 10     # at once: whoever maps memory meanwhile waits as long

# Of the process, as the interpreter's allocator is; under the GIL, but for the thread that touches what is between the
# first two, which stay as they are.
cdef char *RESERVED = NULL
cdef char *RESERVED_END = NULL
cdef char *NEXT = NULL          # of the arenas that are not taken
cdef PyObjectArenaAllocator BEFORE


cdef void *take_arena(void *context, size_t size) noexcept:
    global NEXT
    cdef char *taken = NEXT
    if size > <size_t> (RESERVED_END - NEXT):
        return BEFORE.alloc(BEFORE.ctx, size)
    NEXT += size
    return taken


cdef void drop_arena(void *context, void *memory, size_t size) noexcept:
    if RESERVED <= <char *> memory < RESERVED_END:
        munmap(memory, size)
    else:
        BEFORE.free(BEFORE.ctx, memory, size)


cdef void reserve_arenas(size_t size):
    """Once in a process. Where there is no memory, nothing is reserved."""
    global RESERVED, RESERVED_END, NEXT
    cdef PyObjectArenaAllocator ours
    if RESERVED != NULL:
        return
    RESERVED = NEXT = <char *> kc_reserve(size)
    if RESERVED == NULL:
        return
    RESERVED_END = RESERVED + size
    PyObject_GetArenaAllocator(&BEFORE)
    ours.ctx, ours.alloc, ours.free = NULL, take_arena, drop_arena
    PyObject_SetArenaAllocator(&ours)


cdef void *run(void *paths) noexcept nogil:
    """`paths`: a 0 behind each, and an empty one at the end."""
    cdef const char *path = <const char *> paths
    cdef char *at
    while path[0]:
        # Never closed: the import finds it open. What cannot be opened is the import's to tell.
        dlopen(path, RTLD_NOW)
        path += strlen(path) + 1
    at = RESERVED
    while at < RESERVED_END:
        kc_touch(at, min(<size_t> (RESERVED_END - at), <size_t> TOUCH_BYTES))
        at += TOUCH_BYTES
    return NULL


cdef class Preload:

    def __init__(self, paths, size_t arena_bytes=0):
        cdef bytes text = b"".join([path.encode() + b"\0" for path in paths])
        self.paths = <char *> malloc(len(text) + 1)
        if self.paths == NULL:
            raise MemoryError()
        # With the 0 that ends every bytes: the empty path.
        memcpy(self.paths, <const char *> text, len(text) + 1)
        if arena_bytes:
            reserve_arenas(arena_bytes)
        self.runs = thread_start(&self.thread, "kc-preload", run, self.paths) == 0

    def wait(self):
        if self.runs:
            self.runs = False
            with nogil:
                thread_join(self.thread, NULL)

    def __dealloc__(self):
        if self.runs:
            with nogil:
                thread_join(self.thread, NULL)
        free(self.paths)
