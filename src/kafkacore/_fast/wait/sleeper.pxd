"""A thread that waits for a partition by itself, without a processor or a loop: its own inbox, read until what it waits
for has come.
"""

from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.wait.park cimport Parked, Waiter

ctypedef struct Sleeper:
    Parked parked         # first: a sleeper is found from it; `park_release` gives it back
    Inbox inbox
    Waiter waiter         # for the one place where it waits
    int woken

cdef Sleeper *sleeper_new() noexcept nogil  # NULL with errno set: memory or descriptors are out
# False when the time is over; -1: no limit.
cdef bint sleep_until_woken(Sleeper *sleeper, int timeout_ms) noexcept nogil
