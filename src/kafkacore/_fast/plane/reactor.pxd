"""A reactor: one epoll set, timing wheel and inbox, and the connections that they drive. Its processor's thread alone
runs it. The struct is in connection.pxd.
"""

from kafkacore._fast.plane.connection cimport Reactor, Link
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.plane.plane cimport Plane

# 0 or -errno. `sweep` handles the mail reactor.sweep.
cdef int reactor_init(
    Reactor *reactor, const Clock *clock, int epoll, void (*sweep)(Mail *mail) noexcept nogil
) noexcept nogil
cdef void reactor_close(Reactor *reactor) noexcept nogil  # every connection is gone
# The reactor's Link to a plane, made at first use; NULL when memory runs out. The reactor calls `room` when the plane's
# ring has room again.
cdef Link *reactor_link(Reactor *reactor, Plane *plane, void (*room)(Mail *mail) noexcept nogil) noexcept nogil
cdef void reactor_drop_links(Reactor *reactor) noexcept nogil  # of draining planes without connections
