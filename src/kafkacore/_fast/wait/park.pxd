"""A parked request: what it waits for, and how it comes back to its processor (Kafka's purgatory).

Life: the owning processor parks it with waiters on partitions and a timer; whoever satisfies a waiter (an append, a
sync, a high watermark that moved, a deleted topic) calls `park_wake` after letting go of the partition's lock
(KAFKA-6879, KAFKA-13254); the wake-up is mail; `resume` runs on the owner's thread, looks again, and either answers
or stays parked. Wake-ups are merged: a request that is woken ten times before it runs, runs once.

The count: one for the owner, one for each waiter in a list, one for a mail under way.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.timer cimport Timer

cdef enum:
    WAKE_READY = 1        # something it waited for happened
    WAKE_TIMEOUT = 2
    WAKE_GONE = 4         # a partition was closed or moved: look again, expect errors

ctypedef struct Parked:
    Mail mail             # first: a Parked is found from its mail
    Timer timer
    Inbox *inbox          # of the owning processor, or of a simulator's thread
    int32_t refs          # atomic
    int32_t why           # atomic: WAKE_ bits since it last ran
    void (*resume)(Parked *parked, int why) noexcept nogil  # owner's thread
    void (*destroy)(Parked *parked) noexcept nogil  # last count gone; any thread

# One place in a partition's list of waiters. `at` is the least offset that satisfies it.
ctypedef struct Waiter:
    Waiter *next
    Waiter **back         # NULL when in no list; the partition's lock covers both
    Parked *parked
    int64_t at
    int32_t kind


cdef void park_init(Parked *parked, Inbox *inbox) noexcept nogil  # count 1
cdef void park_hold(Parked *parked) noexcept nogil
cdef void park_release(Parked *parked) noexcept nogil
cdef void park_wake(Parked *parked, int why) noexcept nogil  # any thread, no lock held

# A short list of parked requests to wake once a lock is let go: filled under the lock, each entry counted.
cdef enum:
    WAKE_BATCH = 64

ctypedef struct WakeList:
    Parked *items[WAKE_BATCH]
    int count
    int why

cdef void wake_all(WakeList *wakes) noexcept nogil  # wakes and gives the counts back; the list is empty afterwards
