"""Puts requests onto the plane's ring, and keeps the line of connections that wait while the ring is full."""

from kafkacore._fast.plane.connection cimport Connection
from kafkacore._fast.plane.plane cimport Request
from kafkacore._fast.wait.mail cimport Mail

# Gives the waiting request to a handler. False: the ring is full and the connection stands in line.
cdef bint hand_over(Connection *conn, Request *request) noexcept nogil
cdef void leave_ring_queue(Connection *conn) noexcept nogil  # a connection that closes
cdef void room_on_ring(Mail *mail) noexcept nogil  # the mail of a Link's waiter
