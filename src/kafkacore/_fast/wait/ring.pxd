"""A bounded ring (a queue) with many producers and one consumer. Its capacity is exactly queued.max.requests (20 on the
control plane, KIP-291), and need not be a power of two. An eventfd wakes the consumer.

If the ring is full, a push fails, and the ring registers the producer's mail (a message that wakes the producer's
thread, see mail.pxd). The consumer posts this mail when it has taken items from the ring. So the producer always learns
that the ring has room again.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Mutex

# A producer that waits for room. Each processor (a thread that serves connections) has a `RingWaiter` for each ring to
# which it pushes.
ctypedef struct RingWaiter:
    Mail mail
    Inbox *inbox
    RingWaiter *next      # the ring's lock guards this field
    bint registered       # the ring's lock guards this field

ctypedef struct Cell:     # private to ring.pyx, as are the fields of a `Ring`
    int64_t sequence      # atomic
    void *item

ctypedef struct Ring:
    # `tail`, which the producers write, and `head`, which the consumer writes, are on different cache lines.
    int64_t tail          # atomic: the number of pushes so far
    int64_t pad_tail[7]
    int64_t head          # atomic: the number of items popped so far
    int32_t sleeping      # atomic
    int32_t waiting       # atomic: the number of `waiters`
    int64_t pad_head[6]
    int64_t capacity
    int eventfd
    Mutex lock
    RingWaiter *waiters
    Inbox bell            # only its eventfd is used
    Cell *cells

# Returns NULL and sets errno if no memory or file descriptor is left.
cdef Ring *ring_new(int32_t capacity) noexcept nogil
cdef void ring_free(Ring *ring) noexcept nogil
# Returns False if the ring is full. In that case, `waiter` is registered unless it is NULL.
cdef bint ring_push(Ring *ring, void *item, RingWaiter *waiter) noexcept nogil
cdef void ring_forget(Ring *ring, RingWaiter *waiter) noexcept nogil  # the mail of `waiter` may already be posted
cdef int ring_pop(Ring *ring, void **into, int most) noexcept nogil  # for the consumer; returns the number of items
# `ring_take` is the part of `ring_pop` that a consumer can call while it holds the GIL. After `ring_take` has returned
# items, the consumer must call `ring_wake` if `ring_is_awaited` returns True. `ring_wake` takes a lock, so the consumer
# must release the GIL before that call.
cdef int ring_take(Ring *ring, void **into, int most) noexcept nogil
cdef bint ring_is_awaited(Ring *ring) noexcept nogil
cdef void ring_wake(Ring *ring) noexcept nogil
cdef int32_t ring_size(Ring *ring) noexcept nogil
cdef int ring_eventfd(Ring *ring) noexcept nogil
cdef bint ring_may_sleep(Ring *ring) noexcept nogil  # like `inbox_may_sleep` (mail.pxd), for items
cdef void ring_awake(Ring *ring) noexcept nogil
