"""Implements budgets and frames. The fast path of a budget uses one atomic word. Only a reservation that must wait
takes the lock. memory.pxd has the contract."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc

from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add32, add64, cas64, fence, load32, load64
from kafkacore._fast.wait.mail cimport Inbox, Mail, inbox_close, inbox_deliver, inbox_init, inbox_post
from kafkacore._fast.base.lock_order cimport RANK_BUDGET
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_guards, mutex_init, mutex_lock, mutex_unlock

cdef extern from * nogil:
    """
    #include <pthread.h>
    static __thread void *kc_recycler;
    static pthread_key_t kc_recycler_key;
    """
    void *kc_recycler
    ctypedef int pthread_key_t
    pthread_key_t kc_recycler_key
    int pthread_key_create(pthread_key_t *key, void (*destroy)(void *) noexcept nogil)
    int pthread_setspecific(pthread_key_t key, const void *value)

cdef enum:
    FRAME_HEADER = 64             # bytes for the struct, so that the data begins on its own cache line
    SMALLEST_SHIFT = 9            # the smallest size class has blocks of 512 bytes
    CLASSES = 15                  # the largest size class has blocks of 8 MiB; larger blocks are not kept
    KEPT_BYTES = 16 << 20         # a thread keeps at most this many bytes
    KEPT_BLOCKS = 256             # a thread keeps at most this many blocks of one class

# The frames that a thread keeps for reuse, the newest first.
ctypedef struct Recycler:
    Frame *kept[CLASSES]          # linked through `data`
    int32_t counts[CLASSES]
    int64_t bytes

cdef int64_t live_frames = 0      # atomic


cdef int budget_init(Budget *budget, int64_t limit) noexcept nogil:
    budget.limit = limit
    budget.used = 0
    budget.parked = 0
    budget.parked_limit = limit // 2
    budget.waiting = 0
    budget.under_way.oldest = budget.under_way.newest = NULL
    budget.new.oldest = budget.new.newest = NULL
    budget.overdrawn = False
    cdef int error = mutex_init(&budget.lock, RANK_BUDGET)
    if error == 0:
        mutex_guards(&budget.lock, check_budget, budget)
    return -error


cdef int32_t check_line(const WaitingLine *line) noexcept nogil:
    """Returns the number of reservations in the queue."""
    cdef const Reservation *at = line.oldest
    cdef const Reservation *last = NULL
    cdef int32_t count = 0
    while at != NULL:
        debug_assert(at.waiting, b"a reservation in a line waits")
        debug_assert(at.size > 0, b"a reservation asks for bytes")
        last = at
        at = at.next
        count += 1
    debug_assert(line.newest == last, b"the newest reservation is the last of its line")
    return count


cdef void check_budget(const void *guarded) noexcept nogil:
    cdef const Budget *budget = <const Budget *> guarded
    cdef int64_t used = load64(&budget.used)
    cdef int32_t count = check_line(&budget.under_way) + check_line(&budget.new)
    debug_assert(count == load32(&budget.waiting), b"the budget counts the reservations that wait")
    debug_assert(used >= 0, b"no more bytes are released than were reserved")


cdef void budget_close(Budget *budget) noexcept nogil:
    mutex_destroy(&budget.lock)


cdef inline bint take_bytes(Budget *budget, int64_t size) noexcept nogil:
    cdef int64_t used
    while True:
        used = load64(&budget.used)
        if used + size > budget.limit:
            return False
        if cas64(&budget.used, used, used + size):
            return True


cdef inline void line_up(WaitingLine *line, Reservation *reservation) noexcept nogil:
    reservation.waiting = True
    reservation.next = NULL
    if line.newest == NULL:
        line.oldest = reservation
    else:
        line.newest.next = reservation
    line.newest = reservation


cdef bint step_out(WaitingLine *line, Reservation *reservation) noexcept nogil:
    """Removes the reservation from the queue. Returns False if it is not in this queue."""
    cdef Reservation *at = line.oldest
    cdef Reservation *before = NULL
    while at != NULL and at != reservation:
        before = at
        at = at.next
    if at == NULL:
        return False
    if before == NULL:
        line.oldest = at.next
    else:
        before.next = at.next
    if line.newest == at:
        line.newest = before
    reservation.waiting = False
    return True


cdef bint take_for(Budget *budget, Reservation *reservation) noexcept nogil:
    """Takes the bytes of a reservation. Overdraws the budget for them if the reservation may do so. The caller must
    hold the lock."""
    if take_bytes(budget, reservation.size):
        return True
    if reservation.rest == 0 or budget.overdrawn:
        return False
    budget.overdrawn = reservation.overdraft = True
    reservation.size = reservation.rest
    add64(&budget.used, reservation.size)
    return True


cdef bint take_or_wait(Budget *budget, Reservation *reservation) noexcept nogil:
    cdef bint is_new = reservation.rest == 0
    cdef bint granted
    reservation.waiting = False
    reservation.overdraft = False
    if load32(&budget.waiting) == 0 and take_bytes(budget, reservation.size):
        return True
    mutex_lock(&budget.lock)
    add32(&budget.waiting, 1)
    # `budget_release` gives bytes back before it reads `waiting`. A waiter increments `waiting` before it tries to take
    # bytes. So either the waiter finds the bytes, or the releasing thread finds the waiter.
    fence()
    granted = budget.under_way.oldest == NULL and (not is_new or budget.new.oldest == NULL)
    granted = granted and take_for(budget, reservation)
    if granted:
        add32(&budget.waiting, -1)
    else:
        line_up(&budget.new if is_new else &budget.under_way, reservation)
    mutex_unlock(&budget.lock)
    return granted


cdef bint budget_reserve(Budget *budget, Reservation *reservation, int64_t size) noexcept nogil:
    reservation.size = size
    reservation.rest = 0
    return take_or_wait(budget, reservation)


cdef bint budget_grow(Budget *budget, Reservation *reservation, int64_t size, int64_t rest) noexcept nogil:
    reservation.size = size
    reservation.rest = rest
    return take_or_wait(budget, reservation)


cdef void grant_line(Budget *budget, WaitingLine *line) noexcept nogil:
    cdef Reservation *first
    while line.oldest != NULL and take_for(budget, line.oldest):
        first = line.oldest
        line.oldest = first.next
        if line.oldest == NULL:
            line.newest = NULL
        first.waiting = False
        add32(&budget.waiting, -1)
        # The mail is posted under the lock. So if `budget_cancel` does not find the reservation in the queue, its mail
        # has already been posted.
        inbox_post(first.inbox, &first.mail)


cdef void grant_waiting(Budget *budget) noexcept nogil:
    mutex_lock(&budget.lock)
    grant_line(budget, &budget.under_way)
    if budget.under_way.oldest == NULL:
        grant_line(budget, &budget.new)
    mutex_unlock(&budget.lock)


cdef bint budget_cancel(Budget *budget, Reservation *reservation) noexcept nogil:
    cdef bint found
    mutex_lock(&budget.lock)
    found = step_out(&budget.new if reservation.rest == 0 else &budget.under_way, reservation)
    if found:
        add32(&budget.waiting, -1)
    mutex_unlock(&budget.lock)
    if found and load32(&budget.waiting):
        grant_waiting(budget)  # the next reservation in the queue may fit
    return found


cdef void budget_release(Budget *budget, int64_t size, bint overdraft) noexcept nogil:
    cdef int64_t used = add64(&budget.used, -size)
    debug_assert(used >= 0, b"no more bytes are released than were reserved")
    if overdraft:
        mutex_lock(&budget.lock)
        budget.overdrawn = False
        mutex_unlock(&budget.lock)
    fence()
    if load32(&budget.waiting):
        grant_waiting(budget)


cdef bint budget_park(Budget *budget, int64_t size, bint must) noexcept nogil:
    if add64(&budget.parked, size) > budget.parked_limit and not must:
        add64(&budget.parked, -size)
        return False
    add64(&budget.used, size)
    return True


cdef void budget_unpark(Budget *budget, int64_t size) noexcept nogil:
    add64(&budget.parked, -size)
    budget_release(budget, size, False)


# Frames

cdef inline int class_of(int64_t bytes) noexcept nogil:
    cdef int found = 0
    while found < CLASSES and bytes > <int64_t> 1 << (SMALLEST_SHIFT + found):
        found += 1
    return found


cdef Recycler *recycler() noexcept nogil:
    global kc_recycler
    if kc_recycler == NULL:
        kc_recycler = calloc(1, sizeof(Recycler))
        if kc_recycler != NULL:
            pthread_setspecific(kc_recycler_key, kc_recycler)
    return <Recycler *> kc_recycler


cdef void empty_recycler(Recycler *keeper) noexcept nogil:
    cdef Frame *frame
    cdef int i
    for i in range(CLASSES):
        while keeper.kept[i] != NULL:
            frame = keeper.kept[i]
            keeper.kept[i] = <Frame *> frame.data
            free(frame)
        keeper.counts[i] = 0
    keeper.bytes = 0


cdef void end_recycler(void *keeper) noexcept nogil:
    empty_recycler(<Recycler *> keeper)
    free(keeper)


cdef void frames_trim() noexcept nogil:
    if kc_recycler != NULL:
        empty_recycler(<Recycler *> kc_recycler)


cdef Frame *frame_new(Budget *budget, int64_t size, int64_t reserved, int skew) noexcept nogil:
    cdef int kind = class_of(size + FRAME_HEADER)
    cdef int64_t bytes = size + FRAME_HEADER + 2 * CACHE_LINE_BYTES
    cdef Recycler *keeper = recycler()
    cdef Frame *frame
    if kind < CLASSES:
        bytes = <int64_t> 1 << (SMALLEST_SHIFT + kind)
    if keeper != NULL and kind < CLASSES and keeper.kept[kind] != NULL:
        frame = keeper.kept[kind]
        keeper.kept[kind] = <Frame *> frame.data
        keeper.counts[kind] -= 1
        keeper.bytes -= bytes
    else:
        frame = <Frame *> malloc(bytes)
        if frame == NULL:
            return NULL
    frame.refs = 1
    frame.size = size
    frame.received = 0
    frame.capacity = bytes - FRAME_HEADER
    frame.reserved = reserved
    frame.overdraft = 0
    frame.budget = budget
    frame.data = <uint8_t *> ((<size_t> frame + FRAME_HEADER + CACHE_LINE_BYTES - 1) & ~<size_t> (CACHE_LINE_BYTES - 1))
    frame.data += skew
    if frame.data + size > <uint8_t *> frame + bytes:
        frame.data = <uint8_t *> frame + FRAME_HEADER
    add64(&live_frames, 1)
    return frame


cdef void frame_hold(Frame *frame) noexcept nogil:
    add32(&frame.refs, 1)


cdef bint frame_drop(Frame *frame) noexcept nogil:
    return add32(&frame.refs, -1) == 0


cdef void frame_release(Frame *frame) noexcept nogil:
    if frame_drop(frame):
        frame_return(frame)


cdef void frame_return(Frame *frame) noexcept nogil:
    cdef Recycler *keeper
    cdef int64_t bytes
    cdef int kind
    if frame.budget != NULL:
        budget_release(frame.budget, frame.reserved, frame.overdraft != 0)
    add64(&live_frames, -1)
    bytes = frame.capacity + FRAME_HEADER
    kind = class_of(bytes)
    keeper = recycler()
    if keeper == NULL or kind == CLASSES or keeper.counts[kind] == KEPT_BLOCKS or keeper.bytes + bytes > KEPT_BYTES:
        free(frame)
        return
    frame.data = <uint8_t *> keeper.kept[kind]
    keeper.kept[kind] = frame
    keeper.counts[kind] += 1
    keeper.bytes += bytes


if sizeof(Frame) > FRAME_HEADER:
    raise ImportError("kafkacore._fast.wait.memory: a Frame outgrew its header")
if pthread_key_create(&kc_recycler_key, end_recycler) != 0:
    raise ImportError("kafkacore._fast.wait.memory: no thread-specific key is left")


# For tests.

def live() -> int:
    """Returns the number of frames in use."""
    return load64(&live_frames)


ctypedef struct Claim:
    Reservation reservation
    int64_t number
    void *owner


cdef void claim_granted(Mail *mail) noexcept nogil:
    cdef Claim *claim = <Claim *> mail
    with gil:
        (<PyBudget> claim.owner).granted.append(claim.number)


cdef class PyBudget:
    """A budget with at most 256 numbered claims."""

    cdef Budget budget
    cdef Inbox inbox
    cdef Claim claims[256]
    cdef list granted

    def __cinit__(self, int64_t limit):
        cdef int i
        self.inbox.eventfd = -1
        if budget_init(&self.budget, limit) or inbox_init(&self.inbox):
            raise OSError("no lock or descriptor is left")
        self.granted = []
        for i in range(256):
            self.claims[i].reservation.mail.posted = 0
            self.claims[i].reservation.mail.deliver = claim_granted
            self.claims[i].reservation.inbox = &self.inbox
            self.claims[i].number = i
            self.claims[i].owner = <void *> self

    def __dealloc__(self):
        inbox_close(&self.inbox)
        budget_close(&self.budget)

    def reserve(self, uint8_t number, int64_t size) -> bool:
        cdef bint granted
        with nogil:
            granted = budget_reserve(&self.budget, &self.claims[number].reservation, size)
        return granted

    def grow(self, uint8_t number, int64_t size, int64_t rest) -> bool:
        cdef bint granted
        with nogil:
            granted = budget_grow(&self.budget, &self.claims[number].reservation, size, rest)
        return granted

    def granted_bytes(self, uint8_t number) -> tuple[int, bool]:
        """Returns the granted size of the claim, and whether the claim overdraws the budget."""
        return self.claims[number].reservation.size, self.claims[number].reservation.overdraft

    def cancel(self, uint8_t number) -> bool:
        """Cancels the claim. Returns True if it was still waiting."""
        cdef bint waited
        with nogil:
            waited = budget_cancel(&self.budget, &self.claims[number].reservation)
        return waited

    def release(self, int64_t size, bint overdraft=False) -> None:
        with nogil:
            budget_release(&self.budget, size, overdraft)

    def park(self, int64_t size, bint must=False) -> bool:
        return budget_park(&self.budget, size, must)

    def unpark(self, int64_t size) -> None:
        with nogil:
            budget_unpark(&self.budget, size)

    def delivered(self) -> list[int]:
        """Returns the numbers of the claims that were granted since the last call, in order."""
        self.granted = []
        with nogil:
            inbox_deliver(&self.inbox)
        return self.granted

    @property
    def used(self) -> int:
        return load64(&self.budget.used)


def frame_addresses(sizes, int skew=0):
    cdef Frame *frame
    found = []
    for size in sizes:
        frame = frame_new(NULL, size, 0, skew)
        if frame == NULL:
            raise MemoryError
        found.append(<size_t> frame.data)
        frame_release(frame)
    return found
