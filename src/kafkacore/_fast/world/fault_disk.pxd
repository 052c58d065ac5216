"""The real disk, with a limit on the bytes that can still be written, and with errors and delays that a test orders.
With this disk, tests see how a running node behaves when its disk fills up, breaks or becomes slow.

The files are real, unlike the files of a simulated disk: sendfile can send them, and other programs can read them.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS

ctypedef struct FaultState:
    # The errno with which each kind of operation fails; 0 if it succeeds. This field and the next three are atomic.
    int32_t errors[FAULTS]
    int64_t room_bytes           # bytes that can still be written; no limit if below 0
    int64_t delay_us             # the delay of each operation
    int64_t hits                 # the number of operations that failed because a test ordered it


cdef class FaultDisk:
    cdef FaultState state
    cdef Disk table
