"""Reads the bytes of a connection and cuts them into frames. incoming.pxd has the contract."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from kafkacore._fast.base.api_keys cimport CONTROLLED_SHUTDOWN
from kafkacore._fast.base.atomics cimport add64
from kafkacore._fast.plane.connection cimport BIG_FRAME_BYTES, SCRATCH_BYTES, STALL_MEMORY, Connection
from kafkacore._fast.base.cursor cimport Reader, be32, read_i16, read_i32, read_uvarint, reader_init, take
from kafkacore._fast.wait.memory cimport (
    FRAME_STEP_BYTES, Frame, budget_grow, budget_release, budget_reserve, frame_new, frame_release,
)
from kafkacore._fast.plane.notices cimport plane_notice
from kafkacore._fast.plane.plane cimport API_KEYS, Plane, Request
from kafkacore._fast.wait.timer cimport wheel_cancel


cdef void refuse(Connection *conn, const char *why) noexcept nogil:
    add64(&conn.plane.malformed_frames, 1)
    plane_notice(conn.plane, conn.address, conn.port, why)
    conn.doomed = True


cdef void keep_rest(Connection *conn, Turn *turn) noexcept nogil:
    cdef int64_t size = turn.end - turn.at
    cdef Frame *rest
    if size == 0:
        drop_rest(conn)
    elif conn.rest != NULL:
        conn.rest_at = turn.at - conn.rest.data
    else:
        # The budget does not count this memory. Otherwise, while a frame waits for memory, its connection would need
        # memory for the bytes behind the frame too.
        rest = frame_new(NULL, size, 0, 0)
        if rest == NULL:
            conn.doomed = True
            return
        memcpy(rest.data, turn.at, size)
        conn.rest = rest
        conn.rest_at = 0


cdef void drop_rest(Connection *conn) noexcept nogil:
    if conn.rest != NULL:
        frame_release(conn.rest)
        conn.rest = NULL


cdef int64_t receive(Connection *conn, Turn *turn, void *into, int64_t size) noexcept nogil:
    """Reads at most `size` bytes. Returns the number of received bytes. 0 means that no bytes have arrived, that the
    stream has ended, or that the socket has failed."""
    cdef int64_t n
    if turn.dry or conn.peer_done:
        return 0
    n = conn.plane.env.transport.recv(conn.plane.env.transport.self, conn.handle, into, <size_t> size)
    if n > 0:
        turn.bytes += n
        conn.active_ms = conn.reactor.wheel.now_ms
        # A short read means that the socket is empty. After a hang-up, the connection reads the socket to the end.
        turn.dry = n < size and not conn.hung_up
        return n
    turn.dry = True
    if n == 0:
        conn.peer_done = True
        conn.hung_up = True
    elif n != -EAGAIN:
        conn.doomed = True
    return 0


cdef Frame *cut(Connection *conn, Turn *turn) noexcept nogil:
    cdef Frame *frame
    cdef int64_t size
    while not conn.doomed:
        frame = conn.frame
        if frame == NULL:
            if not cut_prefix(conn, turn):
                return NULL
            continue
        if frame.received == frame.reserved < frame.size and not grow(conn, frame):
            return NULL
        size = frame.reserved - frame.received
        if turn.at < turn.end:
            size = min(size, turn.end - turn.at)
            memcpy(frame.data + frame.received, turn.at, size)
            turn.at += size
        elif size:
            size = receive(conn, turn, frame.data + frame.received, size)
            if size == 0:
                return NULL
        frame.received += size
        if frame.received == frame.size:
            conn.frame = NULL
            conn.big = frame.size >= BIG_FRAME_BYTES
            wheel_cancel(&conn.reactor.wheel, &conn.slow)
            return frame
    return NULL


cdef bint cut_prefix(Connection *conn, Turn *turn) noexcept nogil:
    """Collects the next size prefix and begins its frame. Returns False if the prefix is not complete yet."""
    cdef int64_t size
    while conn.prefix_size < 4:
        if turn.at < turn.end:
            size = min(<int64_t> (4 - conn.prefix_size), turn.end - turn.at)
            memcpy(conn.prefix + conn.prefix_size, turn.at, size)
            turn.at += size
            conn.prefix_size += <int16_t> size
            continue
        drop_rest(conn)
        if conn.big:
            size = receive(conn, turn, conn.prefix + conn.prefix_size, 4 - conn.prefix_size)
            conn.prefix_size += <int16_t> size
        else:
            size = receive(conn, turn, conn.reactor.scratch, SCRATCH_BYTES)
            turn.at = conn.reactor.scratch
            turn.end = turn.at + size
        if size == 0:
            return False
    conn.frame_size = <int32_t> be32(conn.prefix)
    conn.prefix_size = 0
    return open_frame(conn)


cdef bint open_frame(Connection *conn) noexcept nogil:
    cdef char text[160]
    if conn.frame_size < 0 or conn.frame_size > conn.plane.max_request_bytes:
        snprintf(text, sizeof(text),
                 "closed: a frame claims %d bytes; 0 to %lld are allowed (socket.request.max.bytes)",
                 conn.frame_size, <long long> conn.plane.max_request_bytes)
        refuse(conn, text)
        return False
    if not budget_reserve(&conn.plane.budget, &conn.reservation, min(conn.frame_size, FRAME_STEP_BYTES)):
        conn.stall |= STALL_MEMORY
        conn.refs += 1
        return False
    return go_on_with_frame(conn)


cdef bint grow(Connection *conn, Frame *frame) noexcept nogil:
    """Reserves memory for the next step of a large frame. A step doubles the reserved memory of the frame, or reserves
    the rest of the frame if that is less. Returns False if the frame must wait for memory."""
    cdef int64_t rest = frame.size - frame.reserved
    if not budget_grow(&conn.plane.budget, &conn.reservation, min(frame.reserved, rest), rest):
        conn.stall |= STALL_MEMORY
        conn.refs += 1
        return False
    return go_on_with_frame(conn)


cdef bint go_on_with_frame(Connection *conn) noexcept nogil:
    if conn.frame != NULL:
        conn.frame.reserved += conn.reservation.size
        conn.frame.overdraft |= conn.reservation.overdraft
        return True
    conn.frame = frame_new(&conn.plane.budget, conn.frame_size, conn.reservation.size, conn.skew)
    if conn.frame == NULL:
        budget_release(&conn.plane.budget, conn.reservation.size, False)
        plane_notice(conn.plane, conn.address, conn.port, "closed: no memory for its request")
        conn.doomed = True
        return False
    return True


cdef bint is_served(Plane *plane, Request *request) noexcept nogil:
    if request.api_key < 0 or request.api_key >= API_KEYS:
        return False
    return plane.apis[request.api_key].lowest <= request.api_version <= plane.apis[request.api_key].highest


cdef bint read_header(Plane *plane, Request *request, Frame *frame) noexcept nogil:
    cdef Reader reader
    cdef int32_t size
    cdef uint32_t fields
    reader_init(&reader, frame.data, <size_t> frame.size)
    request.api_key = read_i16(&reader)
    request.api_version = read_i16(&reader)
    request.correlation_id = read_i32(&reader)
    request.header_size = 8
    # To reject a request, the node needs only these fields. In an unknown version, the other fields may differ.
    if reader.bad or not is_served(plane, request):
        return not reader.bad
    if not (request.api_key == CONTROLLED_SHUTDOWN and request.api_version == 0):
        size = read_i16(&reader)
        if size < -1:
            return False
        if size >= 0:
            request.client_id_size = size
            request.client_id = take(&reader, size)
    if request.api_version >= plane.apis[request.api_key].flexible_from:
        fields = read_uvarint(&reader)
        while fields and not reader.bad:
            read_uvarint(&reader)
            take(&reader, read_uvarint(&reader))
            fields -= 1
    request.header_size = <int32_t> (reader.pos - frame.data)
    return not reader.bad
