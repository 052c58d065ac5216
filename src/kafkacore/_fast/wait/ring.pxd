"""A bounded ring with many producers and one consumer, of exact capacity (queued.max.requests; 20 on the control plane,
KIP-291), woken by an eventfd.

A push that fails registers the pusher's mail; the pop that makes room posts it: back-pressure without a lost wake-up.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Mutex

# Who wants to hear of room: part of a processor, one for each ring it pushes to.
ctypedef struct RingWaiter:
    Mail mail
    Inbox *inbox
    RingWaiter *next      # covered by the ring's lock
    bint registered       # likewise

ctypedef struct Cell:     # ring.pyx's own, and so is what a Ring holds
    int64_t sequence      # atomic
    void *item

ctypedef struct Ring:
    int64_t tail          # atomic: the next push; a cache line for the pushers ...
    int64_t pad_tail[7]
    int64_t head          # atomic: the next pop; ... and one for the consumer
    int32_t sleeping      # atomic
    int32_t waiting       # atomic: entries of `waiters`
    int64_t pad_head[6]
    int64_t capacity
    int eventfd
    Mutex lock
    RingWaiter *waiters
    Inbox bell            # only its eventfd is used
    Cell *cells

cdef Ring *ring_new(int32_t capacity) noexcept nogil  # NULL with errno set: memory or descriptors are out
cdef void ring_free(Ring *ring) noexcept nogil
# False: full, `waiter` (may be NULL) is registered
cdef bint ring_push(Ring *ring, void *item, RingWaiter *waiter) noexcept nogil
cdef void ring_forget(Ring *ring, RingWaiter *waiter) noexcept nogil  # its mail may be out already
cdef int ring_pop(Ring *ring, void **into, int most) noexcept nogil  # consumer only; how many
cdef int32_t ring_size(Ring *ring) noexcept nogil
cdef int ring_eventfd(Ring *ring) noexcept nogil
cdef bint ring_may_sleep(Ring *ring) noexcept nogil  # as inbox_may_sleep
cdef void ring_awake(Ring *ring) noexcept nogil
