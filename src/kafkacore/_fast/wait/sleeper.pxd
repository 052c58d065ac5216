"""A thread that waits for a partition by itself, without a processor or an event loop. It has its own inbox and reads
it until the wake-up comes.
"""

from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.wait.park cimport Parked, Waiter

ctypedef struct Sleeper:
    Parked parked         # first: a sleeper is found from it; `park_release` frees it
    Inbox inbox
    Waiter waiter         # for the one place where it waits
    int woken

cdef Sleeper *sleeper_new() except NULL  # raises MemoryError, or OSError when no descriptor is left
# False when `timeout_ms` is over; -1: no limit.
cdef bint sleep_until_woken(Sleeper *sleeper, int timeout_ms) noexcept nogil
