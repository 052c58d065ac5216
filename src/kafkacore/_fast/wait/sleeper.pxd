"""A `Sleeper` lets a thread that has no event loop wait for an event in a partition. The thread has its own inbox, and
sleeps until a wake-up arrives there as a mail (a message to another thread, see mail.pxd). The inbox gets its eventfd
when the thread first sleeps. While no file descriptor is free, the thread looks into the inbox every 20 ms instead.

A simulated world (mail.pxd) has only one thread. Instead of sleeping, this thread runs the tasks of the sleeper's node
until one of the tasks wakes the sleeper.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.wait.io cimport LogDir
from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.wait.park cimport Parked, Waiter
from kafkacore._fast.world.agenda cimport Agenda

ctypedef struct Sleeper:
    # Must be the first field, because `park_release` frees the `Sleeper` at the address of this field.
    Parked parked
    Inbox inbox
    Waiter waiter         # the only waiter of the `Sleeper`
    int woken
    Agenda *agenda        # the agenda of the inbox
    int64_t owner

# Creates a `Sleeper` for waits in the world of `dir`. Raises MemoryError.
cdef Sleeper *sleeper_new(const LogDir *dir) except NULL
# Waits until the sleeper is woken. Returns False if `timeout_ms` passes first; -1 means no timeout. In a simulated
# world, a wait takes no simulated time. If all tasks of the node have ended and none has woken the sleeper, a wait with
# a timeout returns False. A wait without a timeout would never end, so it aborts the process.
cdef bint sleep_until_woken(Sleeper *sleeper, int timeout_ms) noexcept nogil
