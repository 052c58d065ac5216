"""A simulated disk in memory, with power cuts, a capacity, a speed, and faults. Native code uses this disk through the
same table of functions as the real disk (`Disk` in environment.pxd). Python code uses it through the protocol
`runtime.files.Files`. simulated_operations.pxd describes the details."""

from libc.stdint cimport int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.simulated_operations cimport Mount, NameChange, SimDisk


cdef class SimulatedDisk:
    cdef SimDisk disk
    cdef Mount mount      # Python code uses the disk through this `Mount`
    cdef Disk table
    cdef set locked

    cdef int open_file(self, str path, int flags) except -1
    cdef int64_t size_of(self, int file)
    cdef int change(self, NameChange kind, str path, str other) except? -1
    cdef int find(self, str path) except -1
