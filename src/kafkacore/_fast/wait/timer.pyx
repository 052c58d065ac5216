"""Implements the timing wheel with WHEEL_LEVELS wheels of 64 slots each. When a slot of a coarse wheel is due, its
timers move to a finer wheel."""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    SLOT_MASK = WHEEL_SLOTS - 1


cdef void wheel_init(Wheel *wheel, int64_t now_ms) noexcept nogil:
    memset(wheel, 0, sizeof(Wheel))
    wheel.now_ms = now_ms


cdef void place(Wheel *wheel, Timer *timer) noexcept nogil:
    """Puts a timer into the finest wheel that reaches its deadline. A timer that is already due goes into the slot of
    the next millisecond."""
    cdef int64_t at = timer.deadline_ms
    cdef int64_t ahead
    cdef int level = 0
    cdef Timer **slot
    if at <= wheel.now_ms:
        at = wheel.now_ms + 1
    ahead = at - wheel.now_ms
    while level < WHEEL_LEVELS - 1 and ahead >= <int64_t> 1 << (WHEEL_BITS * (level + 1)):
        level += 1
    # A deadline beyond the range of the coarsest wheel gets the last slot of that wheel. When that slot is due, the
    # timer is placed again.
    if ahead >= <int64_t> 1 << (WHEEL_BITS * WHEEL_LEVELS):
        at = wheel.now_ms + (<int64_t> 1 << (WHEEL_BITS * WHEEL_LEVELS)) - 1
    slot = &wheel.slots[level][(at >> (WHEEL_BITS * level)) & SLOT_MASK]
    timer.next = slot[0]
    timer.back = slot
    if timer.next != NULL:
        timer.next.back = &timer.next
    slot[0] = timer


cdef inline void unlink(Timer *timer) noexcept nogil:
    timer.back[0] = timer.next
    if timer.next != NULL:
        timer.next.back = timer.back
    timer.back = NULL


cdef void wheel_add(Wheel *wheel, Timer *timer, int64_t deadline_ms) noexcept nogil:
    wheel_cancel(wheel, timer)
    timer.deadline_ms = deadline_ms
    place(wheel, timer)
    wheel.count += 1


cdef void wheel_cancel(Wheel *wheel, Timer *timer) noexcept nogil:
    if timer.back != NULL:
        unlink(timer)
        wheel.count -= 1


cdef int turn_slot(Wheel *wheel, int level, int64_t slot_index) noexcept nogil:
    """Removes the timers of a slot, fires the timers that are due, and moves the others to a finer wheel. If a `fire`
    function adds a timer, the new timer fires in the next millisecond at the earliest."""
    cdef Timer *pending = wheel.slots[level][slot_index]
    cdef Timer *timer
    cdef int fired = 0
    wheel.slots[level][slot_index] = NULL
    if pending != NULL:
        pending.back = &pending  # so that `fire` may cancel any of these timers
    while pending != NULL:
        timer = pending
        unlink(timer)
        if timer.deadline_ms <= wheel.now_ms:
            wheel.count -= 1
            fired += 1
            timer.fire(timer)
        else:
            place(wheel, timer)
    return fired


cdef int wheel_advance(Wheel *wheel, int64_t now_ms) noexcept nogil:
    cdef int fired = 0
    cdef int level
    cdef int64_t next_ms
    while wheel.now_ms < now_ms:
        next_ms = wheel_next_ms(wheel)
        if next_ms < 0 or next_ms > now_ms:  # no timer is due before `now_ms`
            wheel.now_ms = now_ms
            break
        wheel.now_ms = next_ms
        level = WHEEL_LEVELS - 1
        while level > 0:
            if next_ms & ((<int64_t> 1 << (WHEEL_BITS * level)) - 1) == 0:
                fired += turn_slot(wheel, level, (next_ms >> (WHEEL_BITS * level)) & SLOT_MASK)
            level -= 1
        fired += turn_slot(wheel, 0, next_ms & SLOT_MASK)
    return fired


cdef int64_t wheel_next_ms(Wheel *wheel) noexcept nogil:
    """Returns the start of the earliest slot with a timer, over all wheels. Returns -1 if no slot has a timer."""
    cdef int64_t best = -1
    cdef int64_t at
    cdef int level, step
    if wheel.count == 0:
        return -1
    for level in range(WHEEL_LEVELS):
        for step in range(1, WHEEL_SLOTS + 1):
            at = (wheel.now_ms >> (WHEEL_BITS * level)) + step
            if wheel.slots[level][at & SLOT_MASK] != NULL:
                at <<= WHEEL_BITS * level
                if best < 0 or at < best:
                    best = at
                break
    return best


# For tests.

ctypedef struct Alarm:
    Timer timer
    int64_t number
    void *owner


cdef void alarm_fire(Timer *timer) noexcept nogil:
    cdef Alarm *alarm = <Alarm *> timer
    with gil:
        (<PyWheel> alarm.owner).fired.append(alarm.number)


cdef class PyWheel:
    """A wheel with at most `capacity` numbered alarms."""

    cdef Wheel wheel
    cdef Alarm *alarms
    cdef int64_t capacity
    cdef list fired

    def __cinit__(self, int64_t now_ms=0, int64_t capacity=1024):
        cdef int64_t i
        wheel_init(&self.wheel, now_ms)
        self.fired = []
        self.capacity = capacity
        self.alarms = <Alarm *> calloc(capacity, sizeof(Alarm))
        if self.alarms == NULL:
            raise MemoryError
        for i in range(capacity):
            self.alarms[i].timer.fire = alarm_fire
            self.alarms[i].number = i
            self.alarms[i].owner = <void *> self

    def __dealloc__(self):
        free(self.alarms)

    def add(self, int64_t number, int64_t deadline_ms) -> None:
        """Sets alarm `number`. If it is already set, changes its deadline."""
        if not 0 <= number < self.capacity:
            raise IndexError(number)
        wheel_add(&self.wheel, &self.alarms[number].timer, deadline_ms)

    def cancel(self, int64_t number) -> None:
        if not 0 <= number < self.capacity:
            raise IndexError(number)
        wheel_cancel(&self.wheel, &self.alarms[number].timer)

    def advance(self, int64_t now_ms) -> list[int]:
        """Advances the wheel, and returns the numbers of the fired alarms in order."""
        self.fired = []
        with nogil:
            wheel_advance(&self.wheel, now_ms)
        return self.fired

    def next_ms(self) -> int:
        return wheel_next_ms(&self.wheel)

    def __len__(self) -> int:
        return self.wheel.count
