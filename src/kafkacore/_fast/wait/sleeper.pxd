"""A thread that waits for a partition by itself, without a processor or an event loop. It has its own inbox and reads
it until the wake-up comes.

A simulated world has only the thread that would sleep. It runs the tasks of its node instead, until one wakes it.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.wait.io cimport LogDir
from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.wait.park cimport Parked, Waiter
from kafkacore._fast.world.agenda cimport Agenda

ctypedef struct Sleeper:
    Parked parked         # first, so that its address is the sleeper's; `park_release` frees both
    Inbox inbox
    Waiter waiter         # for the one place where it waits
    int woken
    Agenda *agenda        # the inbox's
    int64_t owner

# For waits in the world of `dir`. Raises MemoryError, or OSError when no descriptor is left.
cdef Sleeper *sleeper_new(const LogDir *dir) except NULL
# False when `timeout_ms` is over; -1: no limit. In a simulated world no time passes. When the node's tasks have ended
# and none has woken it, a wait with a limit returns False, and one without aborts the process: it would never end.
cdef bint sleep_until_woken(Sleeper *sleeper, int timeout_ms) noexcept nogil
