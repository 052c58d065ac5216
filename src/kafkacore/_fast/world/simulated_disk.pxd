"""A simulated Disk behind the same table of functions as the real one: in memory, with a power switch, a capacity, a
speed, and errors on order.

A power cut stops everything: the operation under way may have reached the disk in part, every later one fails with EIO,
until `restart` decides by a seed what is left (simstore.pxd). Handles opened before a cut stay dead after it.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS
from kafkacore._fast.world.simulated_store cimport Inode, Store
from kafkacore._fast.base.sync cimport Mutex

ctypedef struct Handle:
    Inode *inode          # counted; NULL when closed
    int64_t life          # how often the power had been cut when it was opened

ctypedef struct Fault:
    int error             # 0: none
    int64_t after         # so many operations of this kind still go well

ctypedef struct SimDisk:
    Mutex lock
    Store store
    Handle *handles
    int32_t handle_count
    int64_t operations    # that change something, since the start
    int64_t cut_at        # the number of the one that the cut falls on; -1 never
    int64_t life
    bint dead
    bint cold             # nothing is in the page cache until it is read once
    int64_t capacity_bytes
    int64_t delay_us
    Fault faults[FAULTS]


cdef class SimulatedDisk:
    cdef SimDisk disk
    cdef Disk table
    cdef set locked
