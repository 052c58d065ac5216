"""A hierarchical timing wheel (Varghese and Lauck 1987), as in Kafka's purgatory. A timer is a field of the object that
needs it.

Only the thread that advances a wheel may use the wheel. Adding and cancelling a timer take constant time. An empty
wheel never wakes its thread.
"""

from libc.stdint cimport int64_t

ctypedef struct Timer:
    Timer *next
    Timer **back          # NULL if the timer is not in a wheel
    int64_t deadline_ms
    void (*fire)(Timer *timer) noexcept nogil


cdef enum:
    WHEEL_BITS = 6
    WHEEL_SLOTS = 64
    WHEEL_LEVELS = 6      # 64^6 ms are two years


ctypedef struct Wheel:
    int64_t now_ms
    int64_t count
    Timer *slots[WHEEL_LEVELS][WHEEL_SLOTS]


cdef void wheel_init(Wheel *wheel, int64_t now_ms) noexcept nogil
# Adds a timer. If the timer is already due, it fires in the next millisecond.
cdef void wheel_add(Wheel *wheel, Timer *timer, int64_t deadline_ms) noexcept nogil
cdef void wheel_cancel(Wheel *wheel, Timer *timer) noexcept nogil  # does nothing if the timer is in no wheel
cdef int wheel_advance(Wheel *wheel, int64_t now_ms) noexcept nogil  # fires the due timers; returns their number
# Returns a lower bound of the next deadline; -1 if the wheel is empty.
cdef int64_t wheel_next_ms(Wheel *wheel) noexcept nogil
