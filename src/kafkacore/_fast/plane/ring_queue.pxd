"""Pushes requests onto their plane's ring (the queue of requests for Python, see plane.pxd), and keeps the queue of
connections that wait while the ring is full.
"""

from kafkacore._fast.plane.connection cimport Connection
from kafkacore._fast.plane.plane cimport Request
from kafkacore._fast.wait.mail cimport Mail

# Pushes a request of the connection onto the ring. If the ring is full, puts the connection into the queue and returns
# False.
cdef bint hand_over(Connection *conn, Request *request) noexcept nogil
cdef void leave_ring_queue(Connection *conn) noexcept nogil  # call it for a connection that closes
cdef void room_on_ring(Mail *mail) noexcept nogil  # runs when the ring has room again; `mail` is in `Link.waiter`
