"""A simulated Disk behind the same table of functions as the real one: in memory, with a power switch, a capacity, a
speed, and ordered errors.

A power cut stops everything. The operation under way may reach the disk in part, and every later one fails with EIO
until `restart`. A seed decides what is left then (simulated_store.pxd). Handles from before a cut stay dead after it.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS
from kafkacore._fast.world.simulated_store cimport Inode, Store
from kafkacore._fast.base.sync cimport Mutex

ctypedef struct Handle:
    Inode *inode          # counted; NULL when closed
    int64_t life          # the number of power cuts before it was opened

ctypedef struct Fault:
    int error             # 0: none
    int64_t after         # so many operations of this kind still succeed

ctypedef struct SimDisk:
    Mutex lock
    Store store
    Handle *handles
    int32_t handle_count
    int64_t operations    # that change something, since the start
    int64_t cut_at        # the power is cut at the operation with this number; -1: never
    int64_t life
    bint dead
    bint cold             # a file is not in the page cache before its first read
    int64_t capacity_bytes
    int64_t delay_us
    Fault faults[FAULTS]


cdef class SimulatedDisk:
    cdef SimDisk disk
    cdef Disk table
    cdef set locked

    cdef int open_file(self, str path, int flags) except -1
    cdef int change(self, int kind, str path, str other) except? -1
    cdef int find(self, str path) except -1
