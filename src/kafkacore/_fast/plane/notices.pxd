"""Lines that threads without the GIL write for the application log. Each line concerns a listener or a connection of
one plane, and reaches this plane as a mail (a message to another thread, see mail.pxd). The plane's handler loop takes
the lines and logs them.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.plane.plane cimport Plane

# Queues the line `what`. Puts the peer's address (16 bytes) and port before `what`, unless `address` is NULL. If
# `NOTICES` lines (plane.pxd) are already waiting, only counts the line. Any thread may call this function.
cdef void plane_notice(Plane *plane, const uint8_t *address, int32_t port, const char *what) noexcept nogil
# Frees the lines in `plane.notices_taken`. Only the handler loop's thread may call it.
cdef void drop_notices(Plane *plane) noexcept nogil
