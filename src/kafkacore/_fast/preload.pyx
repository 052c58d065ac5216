"""Shared libraries opened on a thread of their own, as preload.pyi says."""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from kafkacore._fast.sync cimport thread_join, thread_start

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    void *dlopen(const char *path, int flags)


cdef void *run(void *paths) noexcept nogil:
    """`paths`: a 0 behind each, and an empty one at the end."""
    cdef const char *path = <const char *> paths
    while path[0]:
        # Never closed: the import finds it open. What cannot be opened is the import's to tell.
        dlopen(path, RTLD_NOW)
        path += strlen(path) + 1
    return NULL


cdef class Preload:

    def __init__(self, paths):
        cdef bytes text = b"".join([path.encode() + b"\0" for path in paths])
        self.paths = <char *> malloc(len(text) + 1)
        if self.paths == NULL:
            raise MemoryError()
        # With the 0 that ends every bytes: the empty path.
        memcpy(self.paths, <const char *> text, len(text) + 1)
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
