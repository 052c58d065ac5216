"""A simulated Disk behind the same table of functions as the real one, and for Python as `runtime.files.Files`: in
memory, with a power switch, a capacity, a pace, and faults. simulated_operations.pxd says what each of them does."""

from libc.stdint cimport int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.simulated_operations cimport Mount, NameChange, SimDisk


cdef class SimulatedDisk:
    cdef SimDisk disk
    cdef Mount mount      # of the disk as Files
    cdef Disk table
    cdef set locked

    cdef int open_file(self, str path, int flags) except -1
    cdef int64_t size_of(self, int file)
    cdef int change(self, NameChange kind, str path, str other) except? -1
    cdef int find(self, str path) except -1
