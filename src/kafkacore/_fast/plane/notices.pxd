"""Log lines from threads without the GIL. They are mail to the plane; Python takes and logs them."""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.plane.plane cimport Plane

# Queues a line; it begins with the peer's address (16 bytes) and port unless `address` is NULL. Any thread. When
# NOTICES lines wait already, it only counts the line.
cdef void plane_notice(Plane *plane, const uint8_t *address, int32_t port, const char *what) noexcept nogil
# The handler loop's thread only: frees the lines in plane.notices_taken.
cdef void drop_notices(Plane *plane) noexcept nogil
