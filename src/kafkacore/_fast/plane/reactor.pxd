"""A reactor is the event loop of a processor (a thread that serves connections): an epoll set, a timing wheel, an
inbox, and the connections that use them. Only the thread of its processor may use a reactor. connection.pxd defines the
struct.
"""

from kafkacore._fast.plane.connection cimport Reactor, Link
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.plane.plane cimport Plane

# Initialises a reactor. `sweep` runs when the mail `reactor.sweep` (mail.pxd) is delivered. Returns 0 or -errno.
cdef int reactor_init(
    Reactor *reactor, const Clock *clock, int epoll, void (*sweep)(Mail *mail) noexcept nogil
) noexcept nogil
cdef void reactor_close(Reactor *reactor) noexcept nogil  # call this when no connection is left
# Returns the reactor's `Link` to a plane (a group of listeners, see plane.pxd), or NULL if no memory is left. The first
# call for a plane creates the `Link`. The reactor calls `room` when the plane's ring (the queue of requests for Python)
# has room again.
cdef Link *reactor_link(Reactor *reactor, Plane *plane, void (*room)(Mail *mail) noexcept nogil) noexcept nogil
cdef void reactor_drop_links(Reactor *reactor) noexcept nogil  # for draining planes without connections
