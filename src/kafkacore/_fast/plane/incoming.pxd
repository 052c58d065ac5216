"""A connection's bytes, read and cut into frames; and a frame's header. Nothing here closes: it sets `conn.doomed`.

Small frames are cut out of the home's scratch; what a stalled connection leaves there is copied to `rest`, so that an
idle connection owns no buffer at all. After a big frame the next prefix is read alone, and its body straight to where
it stays.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.plane.connection cimport Connection
from kafkacore._fast.wait.memory cimport Frame
from kafkacore._fast.plane.plane cimport Plane, Request

# What a connection may do before others have their turn.
ctypedef struct Turn:
    const uint8_t *at          # read and not cut: in the scratch or in `rest`
    const uint8_t *end
    int64_t bytes              # received, and inflated
    int64_t end_ns             # of its time
    int32_t frames
    bint dry                   # the socket has nothing now

cdef Frame *cut(Connection *conn, Turn *turn) noexcept nogil  # the next whole frame, the caller's; NULL: not now
# The memory that it asked for is granted: the frame begins, or takes it. False when the system has none.
cdef bint go_on_with_frame(Connection *conn) noexcept nogil
cdef void keep_rest(Connection *conn, Turn *turn) noexcept nogil  # at the end of a turn
cdef void drop_rest(Connection *conn) noexcept nogil
cdef bint read_header(Plane *plane, Request *request, Frame *frame) noexcept nogil  # False: cut off
cdef bint is_served(Plane *plane, Request *request) noexcept nogil  # API and version
cdef void refuse(Connection *conn, const char *why) noexcept nogil  # malformed: one logged line, and doomed
