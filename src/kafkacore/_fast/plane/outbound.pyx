"""Implements connections to other nodes. outbound.pxd has the contract."""

from libc.errno cimport EAGAIN, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc

from kafkacore._fast.base.assertions cimport debug_assert, owner_is_me
from kafkacore._fast.base.cursor cimport be32, put32, reserve, writer_free, writer_init
from kafkacore._fast.base.epoll cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll_ctl,
    epoll_event,
)
from kafkacore._fast.plane.driven cimport driven_tag
from kafkacore._fast.plane.plane cimport plane_hold, plane_release
from kafkacore._fast.wait.memory cimport budget_park, budget_unpark
from kafkacore._fast.world.environment cimport IoVec

cdef uint32_t READS = EPOLLIN | EPOLLRDHUP

cdef enum:
    PREFIX_BYTES = 4
    LEAST_ANSWER_BYTES = 4          # an answer has at least a correlation id
    MOST_REQUEST_BYTES = 100 << 20


# --- life ---

cdef int outbound_init(Outbound *out, Reactor *reactor, Plane *plane, int64_t most_bytes) noexcept nogil:
    out.answer = <uint8_t *> malloc(OUTBOUND_LEAST_BYTES)
    if out.answer == NULL:
        return -ENOMEM
    out.capacity = OUTBOUND_LEAST_BYTES
    budget_park(&plane.budget, out.capacity, True)
    out.driven.handle = -1
    out.driven.event = on_event
    out.reactor = reactor
    out.plane = plane
    out.most_bytes = most_bytes + PREFIX_BYTES
    out.size = -1
    plane_hold(plane)
    writer_init(&out.request, MOST_REQUEST_BYTES)
    return 0


cdef void outbound_free(Outbound *out) noexcept nogil:
    debug_assert(out.driven.handle < 0, b"an outbound connection is closed before it is freed")
    budget_unpark(&out.plane.budget, out.capacity)
    free(out.answer)
    writer_free(&out.request)
    plane_release(out.plane)


cdef void begin_anew(Outbound *out) noexcept nogil:
    out.request.size = out.sent = 0
    out.awaits = out.is_whole = out.is_doomed = False
    out.size = -1
    out.received = 0


cdef int outbound_attach(Outbound *out, int handle) noexcept nogil:
    cdef epoll_event event
    cdef int error
    debug_assert(out.driven.handle < 0, b"an outbound connection has one socket at a time")
    begin_anew(out)
    out.interest = 0 if out.holds_reads else READS
    event.events = out.interest
    event.data.ptr = driven_tag(&out.driven)
    if epoll_ctl(out.reactor.epoll, EPOLL_CTL_ADD, handle, &event) != 0:
        error = errno
        out.plane.env.transport.close(out.plane.env.transport.self, handle)
        return -error
    out.driven.handle = handle
    return 0


cdef void outbound_drop(Outbound *out) noexcept nogil:
    cdef epoll_event event
    if out.driven.handle < 0:
        return
    # Without this call, a copy of the descriptor in a child process would keep the connection in the epoll set.
    epoll_ctl(out.reactor.epoll, EPOLL_CTL_DEL, out.driven.handle, &event)
    out.plane.env.transport.close(out.plane.env.transport.self, out.driven.handle)
    out.driven.handle = -1
    begin_anew(out)
    shrink(out)


cdef void lose(Outbound *out, int why) noexcept nogil:
    outbound_drop(out)
    out.lost(out, why)


# --- requests ---

cdef Writer *outbound_begin(Outbound *out) noexcept nogil:
    out.request.size = 0
    out.request.bad = False
    out.sent = 0
    reserve(&out.request, PREFIX_BYTES)
    return &out.request


cdef void outbound_send(Outbound *out) noexcept nogil:
    if out.request.bad:
        lose(out, LOST_NO_MEMORY)
        return
    put32(out.request.data, <unsigned int> (out.request.size - PREFIX_BYTES))
    out.awaits = True
    send_rest(out)


cdef void send_rest(Outbound *out) noexcept nogil:
    cdef IoVec part
    cdef int64_t n = 0
    if out.driven.handle < 0:
        return
    while out.sent < out.request.size and not out.holds_writes:
        part.iov_base = out.request.data + out.sent
        part.iov_len = out.request.size - out.sent
        n = out.plane.env.transport.send(out.plane.env.transport.self, out.driven.handle, &part, 1, False)
        if n == -EAGAIN:
            break
        if n < 0:
            lose(out, <int> -n)
            return
        out.sent += <size_t> n
    watch(out, out.interest & ~EPOLLOUT
          | (EPOLLOUT if out.sent < out.request.size and not out.holds_writes else 0))


cdef void watch(Outbound *out, uint32_t interest) noexcept nogil:
    cdef epoll_event event
    if interest == out.interest or out.is_doomed:
        return
    event.events = interest
    event.data.ptr = driven_tag(&out.driven)
    if epoll_ctl(out.reactor.epoll, EPOLL_CTL_MOD, out.driven.handle, &event) != 0:
        lose(out, errno)
        return
    out.interest = interest


cdef void read_again(Outbound *out) noexcept nogil:
    if out.driven.handle < 0:
        return
    if out.is_doomed:
        lose(out, LOST_CLOSED)
    elif not (out.holds_reads or out.is_whole):
        watch(out, out.interest | READS)


cdef void leave_unread(Outbound *out, uint32_t events) noexcept nogil:
    """Stops watching the socket for input while the socket has data that the user does not read now. Otherwise epoll
    would report the socket in every turn."""
    cdef epoll_event event
    if events & (EPOLLERR | EPOLLHUP):
        out.is_doomed = True
        epoll_ctl(out.reactor.epoll, EPOLL_CTL_DEL, out.driven.handle, &event)
    else:
        watch(out, out.interest & ~READS)


cdef void outbound_hold(Outbound *out, bint reads, bint writes) noexcept nogil:
    out.holds_reads = reads
    out.holds_writes = writes
    send_rest(out)
    read_again(out)


# --- answers ---

cdef bint resize(Outbound *out, int64_t capacity) noexcept nogil:
    cdef uint8_t *answer = <uint8_t *> realloc(out.answer, <size_t> capacity)
    if answer == NULL:
        return False
    # The new size is counted before the old size is given back, so that the budget never counts too little.
    budget_park(&out.plane.budget, capacity, True)
    budget_unpark(&out.plane.budget, out.capacity)
    out.answer = answer
    out.capacity = capacity
    return True


cdef void shrink(Outbound *out) noexcept nogil:
    out.small_answers = 0
    if out.capacity > OUTBOUND_LEAST_BYTES:
        resize(out, OUTBOUND_LEAST_BYTES)


cdef void read_size(Outbound *out) noexcept nogil:
    cdef int64_t size = <int32_t> be32(out.answer)
    if size < LEAST_ANSWER_BYTES or size + PREFIX_BYTES > out.most_bytes:
        lose(out, LOST_MALFORMED)
        return
    out.size = size + PREFIX_BYTES
    if out.size > out.capacity and not resize(out, out.size):
        lose(out, LOST_NO_MEMORY)


cdef void receive(Outbound *out, int64_t most) noexcept nogil:
    """Reads at most `most` bytes. If more bytes have arrived, epoll reports the socket again."""
    cdef int64_t n, room
    while out.driven.handle >= 0 and most > 0 and not out.is_whole:
        room = min((out.size if out.size >= 0 else <int64_t> OUTBOUND_LEAST_BYTES) - out.received, most)
        n = out.plane.env.transport.recv(out.plane.env.transport.self, out.driven.handle, out.answer + out.received,
                                         <size_t> room)
        if n == -EAGAIN:
            return
        if n <= 0:
            lose(out, LOST_CLOSED if n == 0 else <int> -n)
            return
        most -= n
        out.received += n
        if out.size < 0 and out.received >= PREFIX_BYTES:
            read_size(out)
            if out.driven.handle < 0:
                return
        if out.size >= 0 and (out.received > out.size or not out.awaits):
            lose(out, LOST_MALFORMED)  # bytes have arrived although no request waits for an answer
            return
        if out.received == out.size:
            out.is_whole = True
            out.awaits = False
            out.answered(out)
            return
        if n < room:
            return  # the socket is empty


cdef void on_event(Driven *driven, uint32_t events) noexcept nogil:
    cdef Outbound *out = <Outbound *> driven
    debug_assert(owner_is_me(&out.reactor.owner), b"an outbound connection is touched by its processor's thread only")
    if driven.handle < 0:
        return
    if events & EPOLLOUT:
        send_rest(out)
    if driven.handle < 0 or not events & ~EPOLLOUT:
        return
    if out.is_whole or out.holds_reads:
        leave_unread(out, events)
    elif events & EPOLLIN:
        receive(out, out.plane.turn_bytes)
    else:
        lose(out, LOST_CLOSED)


cdef uint8_t *outbound_answer(Outbound *out, size_t *size) noexcept nogil:
    size[0] = <size_t> (out.size - PREFIX_BYTES)
    return out.answer + PREFIX_BYTES


cdef void outbound_done(Outbound *out) noexcept nogil:
    out.small_answers = out.small_answers + 1 if out.size <= OUTBOUND_LEAST_BYTES else 0
    out.is_whole = False
    out.size = -1
    out.received = 0
    if out.small_answers >= OUTBOUND_SMALL_ANSWERS:
        shrink(out)
    read_again(out)
