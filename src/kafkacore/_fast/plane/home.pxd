"""A home's life. Its fields are in connection.pxd; its one thread is its processor's."""

from kafkacore._fast.plane.connection cimport Home, Link
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.plane.plane cimport Plane

# 0 or -errno. `sweep` is delivered when somebody posts home.sweep.
cdef int home_init(Home *home, const Clock *clock, int epoll, void (*sweep)(Mail *mail) noexcept nogil) noexcept nogil
cdef void home_close(Home *home) noexcept nogil  # no connection is left
# The plane as this home serves it, made at first use; NULL when memory is out. `room` is delivered when its ring has
# room.
cdef Link *home_link(Home *home, Plane *plane, void (*room)(Mail *mail) noexcept nogil) noexcept nogil
cdef void home_drop_links(Home *home) noexcept nogil  # of draining planes without connections
