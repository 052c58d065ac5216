"""The real disk with a limit on the bytes that may still be written, with ordered errors and with a delay: it shows
how a running node behaves when its disk fills up, breaks or becomes slow.

Unlike those of the simulated disk, its files are real: sendfile sends them, and other programs can read them.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS

ctypedef struct FaultState:
    int32_t errors[FAULTS]       # an errno for each kind, 0: none; atomic, like the next three
    int64_t room_bytes           # bytes that may still be written; below 0: no limit
    int64_t delay_us             # what each operation takes longer
    int64_t hits                 # refused operations


cdef class FaultDisk:
    cdef FaultState state
    cdef Disk table
