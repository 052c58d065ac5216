"""Parked requests. A parked request waits for an event in a partition, or for a timer. Then the processor (the thread
that serves the request's connection) continues the request. In Kafka, requests wait in a purgatory.

The owning processor parks a request with a timer and with waiters on partitions. An append, a sync, a new high
watermark or a deleted topic can satisfy a waiter. The thread that causes this event first releases the partition's
lock, and then calls `park_wake` (KAFKA-6879, KAFKA-13254). `park_wake` posts a mail (a message to another thread, see
mail.pxd) to the owner's inbox, so `resume` runs on the owner's thread. `resume` checks the partitions again. Then it
either answers the request or leaves it parked. Wake-ups are merged: if a request is woken ten times before `resume`
runs, `resume` runs once.

The owner, each waiter in a list, and a posted mail each hold a reference to the parked request.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.timer cimport Timer

cdef enum:
    WAKE_READY = 1        # a waiter was satisfied
    WAKE_TIMEOUT = 2
    WAKE_GONE = 4         # a partition was closed or moved, so the waiter's next read may return errors

ctypedef struct Parked:
    Mail mail             # must be the first field, so that the `Mail` and its `Parked` have the same address
    Timer timer
    Inbox *inbox          # the inbox of the owning processor, or of a thread of the simulator
    int32_t refs          # atomic
    int32_t why           # atomic: the WAKE_ bits set since the request last ran
    void (*resume)(Parked *parked, int why) noexcept nogil  # runs on the owner's thread
    void (*destroy)(Parked *parked) noexcept nogil  # called on any thread when the last reference is released

# An entry in a partition's list of waiters. `kind` says which offset of the partition the request awaits (a WAIT_
# constant of partition.pxd). The waiter is satisfied when this offset reaches `at`.
ctypedef struct Waiter:
    Waiter *next
    Waiter **back         # NULL if in no list; the partition's lock guards `next` and `back`
    Parked *parked
    int64_t at
    int32_t kind


cdef void park_init(Parked *parked, Inbox *inbox) noexcept nogil  # with one reference
cdef void park_hold(Parked *parked) noexcept nogil
cdef void park_release(Parked *parked) noexcept nogil
cdef void park_wake(Parked *parked, int why) noexcept nogil  # any thread that holds no lock may call it
# The `timer.fire` function of parked requests. Wakes the request with WAKE_TIMEOUT, by mail like every other wake-up.
cdef void park_deadline_passed(Timer *timer) noexcept nogil

# A short list of parked requests. A thread fills the list under a lock, and wakes the requests after it has released
# the lock. The list holds a reference to each request.
cdef enum:
    WAKE_BATCH = 64

ctypedef struct WakeList:
    Parked *items[WAKE_BATCH]
    int count
    int why

cdef void wake_all(WakeList *wakes) noexcept nogil  # wakes and releases all requests; the list is empty afterwards
