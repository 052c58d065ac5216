"""Implements the bounded ring as Vyukov's queue, with a sequence number in each cell. Pushes are numbered from 0. Push
t (`turn` in the code) fills the cell t modulo the capacity. Before this push, the cell has the sequence number 2t,
which means free, and after it 2t + 1, which means full. So every capacity works, even 1. A lock guards the list of
producers that wait for room. Threads take the lock only if the ring is full."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

cdef extern from "<sched.h>" nogil:
    int sched_yield()

from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add32, cas32, cas64, fence, load32, load64, store32, store64
from kafkacore._fast.wait.mail cimport (
    Inbox, Mail, inbox_close, inbox_deliver, inbox_init, inbox_post, ring_bell, silence_bell,
)
from kafkacore._fast.base.lock_order cimport RANK_RING
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_guards, mutex_init, mutex_lock, mutex_unlock


cdef Ring *ring_new(int32_t capacity) noexcept nogil:
    cdef Ring *ring
    cdef int64_t i
    if capacity < 1:
        return NULL
    ring = <Ring *> calloc(1, sizeof(Ring))
    if ring == NULL:
        return NULL
    ring.cells = <Cell *> calloc(capacity, sizeof(Cell))
    if ring.cells == NULL or mutex_init(&ring.lock, RANK_RING) != 0:
        free(ring.cells)
        free(ring)
        return NULL
    if inbox_init(&ring.bell) != 0:  # errno comes from eventfd(2)
        mutex_destroy(&ring.lock)
        free(ring.cells)
        free(ring)
        return NULL
    mutex_guards(&ring.lock, check_ring, ring)
    ring.eventfd = ring.bell.eventfd
    ring.capacity = capacity
    for i in range(capacity):
        ring.cells[i].sequence = 2 * i
    return ring


cdef void check_ring(const void *guarded) noexcept nogil:
    cdef const Ring *ring = <const Ring *> guarded
    cdef const RingWaiter *waiter = ring.waiters
    cdef int32_t count = 0
    while waiter != NULL:
        debug_assert(waiter.registered, b"a waiter in the ring's list is registered")
        count += 1
        waiter = waiter.next
    debug_assert(count == load32(&ring.waiting), b"the ring counts its waiters")


cdef void ring_free(Ring *ring) noexcept nogil:
    if ring == NULL:
        return
    debug_assert(ring.waiters == NULL, b"nobody waits for room on a ring that is freed")
    inbox_close(&ring.bell)
    mutex_destroy(&ring.lock)
    free(ring.cells)
    free(ring)


cdef bint try_push(Ring *ring, void *item) noexcept nogil:
    cdef Cell *cell
    cdef int64_t turn, ahead
    while True:
        turn = load64(&ring.tail)
        cell = &ring.cells[turn % ring.capacity]
        # The numbers of two consecutive pushes into the same cell differ by `capacity`.
        ahead = load64(&cell.sequence) - 2 * turn
        if ahead == 0:
            if cas64(&ring.tail, turn, turn + 1):
                cell.item = item
                store64(&cell.sequence, 2 * turn + 1)
                break
        elif ahead < 0:
            return False
    fence()  # the producer pushes before it reads `sleeping`; the consumer sets `sleeping` before it looks for items
    if load32(&ring.sleeping) and cas32(&ring.sleeping, 1, 0):
        ring_bell(ring.eventfd)
    return True


cdef bint ring_push(Ring *ring, void *item, RingWaiter *waiter) noexcept nogil:
    if try_push(ring, item):
        return True
    if waiter == NULL:
        return False
    mutex_lock(&ring.lock)
    if not waiter.registered:
        waiter.registered = True
        waiter.next = ring.waiters
        ring.waiters = waiter
        add32(&ring.waiting, 1)
    mutex_unlock(&ring.lock)
    fence()
    # If a pop made room before the registration, this second try finds the room. Any later pop finds the waiter.
    if not try_push(ring, item):
        return False
    ring_forget(ring, waiter)
    return True


cdef void ring_forget(Ring *ring, RingWaiter *waiter) noexcept nogil:
    cdef RingWaiter **at
    mutex_lock(&ring.lock)
    if waiter.registered:
        at = &ring.waiters
        while at[0] != waiter:
            at = &at[0].next
        at[0] = waiter.next
        waiter.registered = False
        add32(&ring.waiting, -1)
    mutex_unlock(&ring.lock)


cdef void ring_wake(Ring *ring) noexcept nogil:
    cdef RingWaiter *waiter
    mutex_lock(&ring.lock)
    while ring.waiters != NULL:
        waiter = ring.waiters
        ring.waiters = waiter.next
        waiter.registered = False
        add32(&ring.waiting, -1)
        inbox_post(waiter.inbox, &waiter.mail)
    mutex_unlock(&ring.lock)


cdef int ring_take(Ring *ring, void **into, int most) noexcept nogil:
    cdef Cell *cell
    cdef int64_t turn = load64(&ring.head)
    cdef int count = 0
    debug_assert(0 <= load64(&ring.tail) - turn <= ring.capacity, b"a ring holds no more than its capacity")
    while count < most:
        cell = &ring.cells[turn % ring.capacity]
        if load64(&cell.sequence) != 2 * turn + 1:
            break
        into[count] = cell.item
        store64(&cell.sequence, 2 * (turn + ring.capacity))
        count += 1
        turn += 1
        store64(&ring.head, turn)
    if count:
        fence()  # a push that registers its waiter after this fence sees the room
    return count


cdef bint ring_is_awaited(Ring *ring) noexcept nogil:
    return load32(&ring.waiting) != 0


cdef int ring_pop(Ring *ring, void **into, int most) noexcept nogil:
    cdef int count = ring_take(ring, into, most)
    if count and ring_is_awaited(ring):
        ring_wake(ring)
    return count


cdef int32_t ring_size(Ring *ring) noexcept nogil:
    cdef int64_t head = load64(&ring.head)
    cdef int64_t size = load64(&ring.tail) - head
    return <int32_t> min(max(size, 0), ring.capacity)


cdef int ring_eventfd(Ring *ring) noexcept nogil:
    return ring.eventfd


cdef bint ring_may_sleep(Ring *ring) noexcept nogil:
    cdef int64_t turn = load64(&ring.head)
    store32(&ring.sleeping, 1)
    fence()
    if load64(&ring.cells[turn % ring.capacity].sequence) != 2 * turn + 1:
        return True
    ring_awake(ring)
    return False


cdef void ring_awake(Ring *ring) noexcept nogil:
    store32(&ring.sleeping, 0)


# For tests: a ring of numbers.

cdef void note_room(Mail *mail) noexcept nogil:
    pass


cdef class PyRing:
    """A ring of positive numbers. Any thread may call `push`. Only one thread may call the other methods."""

    cdef Ring *ring
    cdef RingWaiter waiter
    cdef Inbox inbox

    def __cinit__(self, int32_t capacity):
        self.inbox.eventfd = -1
        if capacity < 1:
            raise ValueError(f"a ring's capacity is at least 1, not {capacity}")
        self.ring = ring_new(capacity)
        if self.ring == NULL or inbox_init(&self.inbox):
            raise MemoryError
        self.waiter.mail.deliver = note_room
        self.waiter.inbox = &self.inbox

    def __dealloc__(self):
        ring_free(self.ring)
        inbox_close(&self.inbox)

    def push(self, int64_t number) -> bool:
        """Pushes a number. Returns False if the ring is full. In that case, `room` later counts a notice that the ring
        has room again."""
        cdef bint done
        with nogil:
            done = ring_push(self.ring, <void *> number, &self.waiter)
        return done

    def push_all(self, int64_t first, int64_t count) -> int:
        """Pushes `count` numbers without the GIL. Yields the CPU while the ring is full. Returns the number of times
        that the ring was full."""
        cdef int64_t i = 0
        cdef int64_t full = 0
        with nogil:
            while i < count:
                if ring_push(self.ring, <void *> (first + i), NULL):
                    i += 1
                else:
                    full += 1
                    sched_yield()
        return full

    def pop(self, int most=64) -> list[int]:
        cdef void *items[64]
        cdef int count
        most = min(most, 64)
        with nogil:
            count = ring_pop(self.ring, items, most)
        return [<int64_t> items[i] for i in range(count)]

    def room(self) -> int:
        """Returns how often the ring has reported room again since the last call."""
        return inbox_deliver(&self.inbox)

    def may_sleep(self) -> bool:
        return ring_may_sleep(self.ring)

    def awake(self) -> None:
        ring_awake(self.ring)
        silence_bell(self.ring.eventfd)

    def fileno(self) -> int:
        return self.ring.eventfd

    def __len__(self) -> int:
        return ring_size(self.ring)
