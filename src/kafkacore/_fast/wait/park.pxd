"""A parked request: it waits for partitions or a timer and returns to its processor (Kafka's purgatory).

The owning processor parks a request with a timer and with waiters on partitions. The thread that satisfies a waiter (by
an append, a sync, a new high watermark, a deleted topic) calls `park_wake` after it has released the partition's lock
(KAFKA-6879, KAFKA-13254). The wake-up is mail. `resume` runs on the owner's thread, looks again, and either answers or
stays parked. Wake-ups are merged: a request that is woken ten times before it runs, runs once.

References: one for the owner, one for each waiter in a list, one for a mail under way.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.timer cimport Timer

cdef enum:
    WAKE_READY = 1        # a waiter was satisfied
    WAKE_TIMEOUT = 2
    WAKE_GONE = 4         # a partition was closed or moved: the next look may find errors

ctypedef struct Parked:
    Mail mail             # first, so that its address is the Parked's
    Timer timer
    Inbox *inbox          # the owning processor's, or a simulator thread's
    int32_t refs          # atomic
    int32_t why           # atomic: WAKE_ bits since it last ran
    void (*resume)(Parked *parked, int why) noexcept nogil  # owner's thread
    void (*destroy)(Parked *parked) noexcept nogil  # the last reference is gone; any thread

# An entry in a partition's list of waiters. `at` is the least offset that satisfies it.
ctypedef struct Waiter:
    Waiter *next
    Waiter **back         # NULL when in no list; the partition's lock guards `next` and `back`
    Parked *parked
    int64_t at
    int32_t kind


cdef void park_init(Parked *parked, Inbox *inbox) noexcept nogil  # count 1
cdef void park_hold(Parked *parked) noexcept nogil
cdef void park_release(Parked *parked) noexcept nogil
cdef void park_wake(Parked *parked, int why) noexcept nogil  # any thread, no lock held
# For `timer.fire`: wakes the request with WAKE_TIMEOUT, by mail like every other wake-up.
cdef void park_deadline_passed(Timer *timer) noexcept nogil

# A short list of parked requests, filled under a lock and woken after its release. It holds a reference to each.
cdef enum:
    WAKE_BATCH = 64

ctypedef struct WakeList:
    Parked *items[WAKE_BATCH]
    int count
    int why

cdef void wake_all(WakeList *wakes) noexcept nogil  # wakes and releases all; the list is empty afterwards
