"""Lines that threads without the GIL write for the application log. The threads send the lines to the plane as mail.
Python takes the lines and logs them.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.plane.plane cimport Plane

# Queues a line. The line begins with the peer's address (16 bytes) and port unless `address` is NULL. If NOTICES lines
# are already waiting, only counts the line. Any thread may call this function.
cdef void plane_notice(Plane *plane, const uint8_t *address, int32_t port, const char *what) noexcept nogil
# Frees the lines in plane.notices_taken. Only the handler loop's thread may call it.
cdef void drop_notices(Plane *plane) noexcept nogil
