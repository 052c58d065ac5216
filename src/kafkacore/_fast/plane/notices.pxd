"""Lines for the log from threads without the GIL: mail to the plane, which Python takes and logs."""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.plane.plane cimport Plane

# Queues a line, after the peer's address (16 bytes) and port unless `address` is NULL. Any thread. Beyond NOTICES
# waiting lines it only counts.
cdef void plane_notice(Plane *plane, const uint8_t *address, int32_t port, const char *what) noexcept nogil
# The handler loop's thread only: frees the lines in plane.notices_taken.
cdef void drop_notices(Plane *plane) noexcept nogil
