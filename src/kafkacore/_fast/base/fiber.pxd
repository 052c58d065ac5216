"""Fibers: bodies of native threads that take turns on one thread. A simulated world runs its I/O crews on them.

A fiber has a stack of its own. It runs until it pauses or ends, and `fiber_resume` continues it where it paused. It
touches no Python object, and it holds no lock when it pauses. One thread makes, resumes and frees a fiber.

Without makecontext(3), and under AddressSanitizer and ThreadSanitizer, which do not follow such stacks, a fiber runs to
its end at the first resume: `fiber_may_pause` is False there.
"""

ctypedef struct Fiber:    # private to fiber.pyx
    char nothing

cdef bint fiber_may_pause() noexcept nogil
cdef Fiber *fiber_new(void (*body)(void *argument) noexcept nogil, void *argument) noexcept nogil  # NULL: no memory
cdef bint fiber_resume(Fiber *fiber) noexcept nogil  # True: it paused; False: it has ended
cdef void fiber_pause(Fiber *fiber) noexcept nogil   # the running fiber only
cdef void fiber_free(Fiber *fiber) noexcept nogil    # one that has ended or never began
