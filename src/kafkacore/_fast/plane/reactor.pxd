"""A reactor: an epoll set, a timing wheel, an inbox, and the connections that use them. Only the thread of its
processor may use a reactor. connection.pxd defines the struct.
"""

from kafkacore._fast.plane.connection cimport Reactor, Link
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.plane.plane cimport Plane

# Initialises a reactor. `sweep` is the function that handles the mail reactor.sweep. Returns 0 or -errno.
cdef int reactor_init(
    Reactor *reactor, const Clock *clock, int epoll, void (*sweep)(Mail *mail) noexcept nogil
) noexcept nogil
cdef void reactor_close(Reactor *reactor) noexcept nogil  # no connection may be left
# Returns the reactor's Link to a plane, or NULL if no memory is left. The first call for a plane creates the Link. The
# reactor calls `room` when the plane's ring has room again.
cdef Link *reactor_link(Reactor *reactor, Plane *plane, void (*room)(Mail *mail) noexcept nogil) noexcept nogil
cdef void reactor_drop_links(Reactor *reactor) noexcept nogil  # drops the links of draining planes without connections
