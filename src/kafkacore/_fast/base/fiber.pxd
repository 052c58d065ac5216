"""Fibers let one thread alternate between several functions, which would otherwise need one thread each. A simulated
world has only one thread. There, fibers take the place of the native I/O threads (wait/io.pxd).

A fiber has its own stack. It runs until it pauses or ends, and `fiber_resume` continues it where it paused. A fiber
must not touch a Python object, and it must not hold a lock when it pauses. The same thread creates, resumes and frees a
fiber.

Builds without makecontext(3) cannot switch stacks. The same holds for builds with AddressSanitizer or ThreadSanitizer,
which do not support such switches. In such a build, a fiber runs to its end at the first resume, and `fiber_may_pause`
returns False.
"""

ctypedef struct Fiber:    # private to fiber.pyx
    char nothing

cdef bint fiber_may_pause() noexcept nogil
# Returns NULL if no memory is left.
cdef Fiber *fiber_new(void (*body)(void *argument) noexcept nogil, void *argument) noexcept nogil
cdef bint fiber_resume(Fiber *fiber) noexcept nogil  # returns True if the fiber paused, False if it has ended
cdef void fiber_pause(Fiber *fiber) noexcept nogil   # call it only from the running fiber
cdef void fiber_free(Fiber *fiber) noexcept nogil    # the fiber must have ended, or must never have started
