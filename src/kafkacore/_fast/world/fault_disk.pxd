"""The real disk, with a limit on what may still be written and errors on order: what a running node meets when its disk
fills up or breaks.

Unlike simdisk's its files are real: they are sent by sendfile, and other programs can read them.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS

ctypedef struct FaultState:
    int32_t errors[FAULTS]  # atomic, as everything here; an errno, 0: none
    int64_t room_bytes           # that may still be written; below 0: no limit
    int64_t hits                 # operations that were refused


cdef class FaultDisk:
    cdef FaultState state
    cdef Disk table
