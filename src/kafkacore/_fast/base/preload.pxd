"""A thread that opens shared libraries and touches memory. Owns the paths that it reads; joined at the latest when its
handle goes. The memory is the interpreter's."""

from kafkacore._fast.base.sync cimport Thread

cdef class Preload:
    cdef char *paths
    cdef Thread thread
    cdef bint runs          # and is not joined yet
