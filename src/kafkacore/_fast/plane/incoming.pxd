"""Reads the bytes of a connection, cuts them into frames, and reads the header of a frame. These functions never close
a connection. They set `conn.doomed`, and their caller in connection.pyx then closes the connection.

All connections of a reactor (the event loop of a thread that serves connections) read small frames into the reactor's
scratch buffer, so an idle connection owns no buffer. If a stalled connection leaves bytes in the scratch buffer, they
are copied to `conn.rest`. After a big frame, the connection reads the next frame without the scratch buffer: it first
reads only the size prefix, and then reads the body directly into the new frame.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.plane.connection cimport Connection
from kafkacore._fast.wait.memory cimport Frame
from kafkacore._fast.plane.plane cimport Plane, Request

# The state of one connection during one turn (one pass of the reactor's loop).
ctypedef struct Turn:
    const uint8_t *at          # bytes that have been read but not cut into frames, in the scratch buffer or in `rest`
    const uint8_t *end
    int64_t bytes              # bytes that have been received and inflated in this turn
    int64_t end_ns             # the time at which the connection's share of the turn ends
    int32_t frames
    bint dry                   # the socket is empty now

# Returns the next whole frame, or NULL if it is not complete yet. The caller owns the frame.
cdef Frame *cut(Connection *conn, Turn *turn) noexcept nogil
# Begins the connection's frame or lets it grow, after the budget has granted memory. Returns False if the system has no
# memory.
cdef bint go_on_with_frame(Connection *conn) noexcept nogil
cdef void keep_rest(Connection *conn, Turn *turn) noexcept nogil  # call it at the end of a turn
cdef void drop_rest(Connection *conn) noexcept nogil
cdef bint read_header(Plane *plane, Request *request, Frame *frame) noexcept nogil  # False if incomplete
cdef bint is_served(Plane *plane, Request *request) noexcept nogil  # checks API and version
cdef void refuse(Connection *conn, const char *why) noexcept nogil  # logs one line and sets `conn.doomed`
