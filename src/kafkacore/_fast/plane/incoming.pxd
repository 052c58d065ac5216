"""Reads the bytes of a connection, cuts them into frames, and reads a frame's header. These functions never close a
connection: they set `conn.doomed`.

Small frames are cut out of the reactor's scratch buffer. Bytes that a stalled connection leaves there are copied to
`rest`, so an idle connection owns no buffer. After a big frame the next size prefix is read by itself, and its body
goes straight to its final place.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.plane.connection cimport Connection
from kafkacore._fast.wait.memory cimport Frame
from kafkacore._fast.plane.plane cimport Plane, Request

# A connection's share of one turn.
ctypedef struct Turn:
    const uint8_t *at          # bytes that are read and not cut, in the scratch or in `rest`
    const uint8_t *end
    int64_t bytes              # received, and inflated
    int64_t end_ns             # of its time
    int32_t frames
    bint dry                   # the socket has nothing now

# The next whole frame, which the caller owns. NULL: it is not there yet.
cdef Frame *cut(Connection *conn, Turn *turn) noexcept nogil
# The budget has granted memory: begins the frame, or lets it grow. False when the system has no memory.
cdef bint go_on_with_frame(Connection *conn) noexcept nogil
cdef void keep_rest(Connection *conn, Turn *turn) noexcept nogil  # at the end of a turn
cdef void drop_rest(Connection *conn) noexcept nogil
cdef bint read_header(Plane *plane, Request *request, Frame *frame) noexcept nogil  # False: cut off
cdef bint is_served(Plane *plane, Request *request) noexcept nogil  # API and version
cdef void refuse(Connection *conn, const char *why) noexcept nogil  # logs one line and dooms the connection
