"""A bounded ring with many producers and one consumer. Its capacity is exact (queued.max.requests; 20 on the control
plane, KIP-291). An eventfd wakes the consumer.

A push that fails registers the producer's mail, and the pop that makes room posts it. So a producer never misses that
there is room again.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Mutex

# A producer that waits for room: each processor has one for each ring that it pushes to.
ctypedef struct RingWaiter:
    Mail mail
    Inbox *inbox
    RingWaiter *next      # the ring's lock guards it
    bint registered       # the ring's lock guards it

ctypedef struct Cell:     # private to ring.pyx, like the fields of a Ring
    int64_t sequence      # atomic
    void *item

ctypedef struct Ring:
    int64_t tail          # atomic: the next push; a cache line for the producers ...
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
cdef void ring_forget(Ring *ring, RingWaiter *waiter) noexcept nogil  # its mail may be under way
cdef int ring_pop(Ring *ring, void **into, int most) noexcept nogil  # consumer only; returns how many
# The steps of `ring_pop` for a consumer that holds the GIL: only `ring_wake` locks, so only it needs the GIL released.
# After a `ring_take` of one item or more the consumer calls `ring_wake` if the ring is awaited.
cdef int ring_take(Ring *ring, void **into, int most) noexcept nogil
cdef bint ring_is_awaited(Ring *ring) noexcept nogil
cdef void ring_wake(Ring *ring) noexcept nogil
cdef int32_t ring_size(Ring *ring) noexcept nogil
cdef int ring_eventfd(Ring *ring) noexcept nogil
cdef bint ring_may_sleep(Ring *ring) noexcept nogil  # as inbox_may_sleep
cdef void ring_awake(Ring *ring) noexcept nogil
