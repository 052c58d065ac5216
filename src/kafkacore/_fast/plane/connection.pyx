"""Creates and closes connections, starts their requests, and keeps their answers in order.

A turn is one pass of a processor's event loop. In a turn, the processor serves a connection until it has served
`turn_frames` requests, has received `turn_bytes` bytes, or has used TURN_NS of time. Then it serves the other
connections. A request that needs more time yields by itself and continues in a later turn (hot/produce.pyx).
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kafkacore._fast.base.assertions cimport debug_assert, owner_is_me
from kafkacore._fast.base.api_keys cimport API_VERSIONS, PRODUCE
from kafkacore._fast.plane.answer cimport answer_clear
from kafkacore._fast.base.atomics cimport add32, add64, load32, load64, load_ptr, store_ptr
from kafkacore._fast.base.epoll cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll_ctl,
    epoll_event,
)
from kafkacore._fast.plane.gate cimport GATE_CLOSE, GATE_PUNT, Gate, gate_judge
from kafkacore._fast.plane.reactor cimport reactor_drop_links, reactor_link
from kafkacore._fast.plane.incoming cimport (
    Turn, cut, drop_rest, go_on_with_frame, is_served, keep_rest, read_header, refuse,
)
from kafkacore._fast.wait.memory cimport budget_cancel, budget_release, frame_release
from kafkacore._fast.plane.outgoing cimport answer_sent, keep_sample, note_stages, send_answers
from kafkacore._fast.plane.addresses cimport address_leave
from kafkacore._fast.plane.plane cimport (
    API_KEYS, DRAIN_AT_ONCE, HOT_APIS, REQUEST_BLOCKED, REQUEST_DONE, REQUEST_OUT, REQUEST_PARKED, SERVED, SERVED_CLOSE,
    SERVED_PARKED, SERVED_PUNT, TURN_NS, ApiVersionRange, plane_hold, plane_release,
)
from kafkacore._fast.plane.ring_queue cimport hand_over, leave_ring_queue, room_on_ring
from kafkacore._fast.plane.samples cimport sample_new, sampler_chooses
from kafkacore._fast.wait.timer cimport wheel_add, wheel_cancel
from kafkacore._fast.plane.versions cimport answer_versions

cdef enum:
    # While one of these bits is set, no further request starts.
    HOLDS = STALL_RING | STALL_DELAYED | STALL_MUTED | STALL_ENDING

cdef int64_t live_connections = 0  # atomic
cdef int64_t live_requests = 0


def live() -> dict[str, int]:
    """Returns the number of existing connections and of existing requests."""
    return {"connections": load64(&live_connections), "requests": load64(&live_requests)}


cdef int64_t connections_open() noexcept nogil:
    return load64(&live_connections)


cdef int reactor_go_on(Reactor *reactor, int most) noexcept nogil:
    cdef Connection **end = reactor.ready_end  # connections that become ready during this call wait for the next call
    cdef Connection *conn
    cdef bint is_last = False
    cdef int count = 0
    while reactor.ready != NULL and count < most and not is_last:
        conn = reactor.ready
        is_last = &conn.next_ready == end
        reactor.ready = conn.next_ready
        if reactor.ready == NULL:
            reactor.ready_end = &reactor.ready
        conn.is_ready = False
        connection_go_on(conn)
        release(conn)
        count += 1
    return count


cdef void reactor_bury(Reactor *reactor) noexcept nogil:
    cdef Connection *conn
    while reactor.closed != NULL:
        conn = reactor.closed
        reactor.closed = conn.next_closed
        release(conn)


cdef void reactor_close_all(Reactor *reactor) noexcept nogil:
    while reactor.first != NULL:
        connection_close(reactor.first)


cdef void reactor_swept(Mail *mail) noexcept nogil:
    cdef Reactor layout  # only for the offset of the field
    cdef Reactor *reactor = <Reactor *> (<char *> mail - (<char *> &layout.sweep - <char *> &layout))
    cdef Connection *conn = reactor.first
    cdef Connection *next
    while conn != NULL:
        next = conn.next
        if load32(&conn.plane.draining) == DRAIN_AT_ONCE:
            connection_close(conn)
        elif load32(&conn.plane.draining):
            conn.closing = True
            make_ready(conn)
        conn = next
    reactor_bury(reactor)
    reactor_drop_links(reactor)


# Life

cdef Connection *connection_new(Reactor *reactor, Plane *plane, int handle) noexcept nogil:
    cdef Connection *conn = <Connection *> calloc(1, sizeof(Connection))
    if conn == NULL:
        return NULL
    add64(&live_connections, 1)
    plane_hold(plane)
    conn.refs = 1
    conn.handle = handle
    conn.plane = plane
    conn.reactor = reactor
    conn.arrive.deliver = deliver_arrival
    conn.idle.fire = idle_fired
    conn.slow.fire = slow_fired
    conn.hold.fire = hold_fired
    conn.reservation.mail.deliver = memory_granted
    conn.reservation.inbox = &reactor.inbox
    return conn


cdef void deliver_arrival(Mail *mail) noexcept nogil:
    cdef Connection *conn = <Connection *> mail
    cdef Reactor *reactor = conn.reactor
    cdef epoll_event event
    conn.link = reactor_link(reactor, conn.plane, room_on_ring)
    conn.next = reactor.first
    if reactor.first != NULL:
        reactor.first.previous = conn
    reactor.first = conn
    add32(&reactor.count, 1)
    if conn.link == NULL:
        connection_close(conn)
        return
    conn.link.connections += 1
    conn.interest = EPOLLIN | EPOLLRDHUP
    event.events = conn.interest
    event.data.ptr = conn
    if load32(&reactor.stopping) or load32(&conn.plane.draining):
        connection_close(conn)
    elif epoll_ctl(reactor.epoll, EPOLL_CTL_ADD, conn.handle, &event) != 0:
        connection_close(conn)
    else:
        conn.active_ms = reactor.wheel.now_ms
        wheel_add(&reactor.wheel, &conn.idle, reactor.wheel.now_ms + conn.plane.idle_ms)


cdef inline void release(Connection *conn) noexcept nogil:
    cdef Plane *plane
    debug_assert(owner_is_me(&conn.reactor.owner), b"a connection is touched by its processor's thread only")
    debug_assert(conn.refs > 0, b"a connection is released no more often than it was held")
    conn.refs -= 1
    if conn.refs:
        return
    debug_assert(conn.is_closed, b"a connection that is freed was closed")
    debug_assert(conn.first == NULL and conn.waiting == NULL, b"a connection that is freed has no request")
    plane = conn.plane
    if conn.link != NULL:
        conn.link.connections -= 1
    address_leave(plane, conn.address)
    add32(&plane.connection_count, -1)
    add32(&plane.listener_connections[conn.listener], -1)
    free(conn)
    add64(&live_connections, -1)
    plane_release(plane)


cdef void connection_close(Connection *conn) noexcept nogil:
    cdef Reactor *reactor = conn.reactor
    cdef epoll_event event
    debug_assert(owner_is_me(&conn.reactor.owner), b"a connection is touched by its processor's thread only")
    if conn.is_closed:
        return
    conn.is_closed = True
    if conn.next != NULL:
        conn.next.previous = conn.previous
    if conn.previous != NULL:
        conn.previous.next = conn.next
    else:
        reactor.first = conn.next
    add32(&reactor.count, -1)
    wheel_cancel(&reactor.wheel, &conn.idle)
    wheel_cancel(&reactor.wheel, &conn.slow)
    wheel_cancel(&reactor.wheel, &conn.hold)
    if conn.stall & STALL_MEMORY and budget_cancel(&conn.plane.budget, &conn.reservation):
        conn.refs -= 1  # otherwise the grant's mail is posted, and `memory_granted` releases bytes and reference
    if conn.stall & STALL_RING:
        leave_ring_queue(conn)
    drop_requests(conn)
    if conn.frame != NULL:
        frame_release(conn.frame)
    drop_rest(conn)
    # Without this call, a copy of the descriptor in a child process would keep the connection in the epoll set.
    epoll_ctl(reactor.epoll, EPOLL_CTL_DEL, conn.handle, &event)
    conn.plane.env.transport.close(conn.plane.env.transport.self, conn.handle)
    conn.next_closed = reactor.closed
    reactor.closed = conn


cdef void drop_requests(Connection *conn) noexcept nogil:
    """Frees all requests except those that handlers own. The handlers return their requests by mail."""
    cdef Request *request = conn.first
    cdef Request *next
    while request != NULL:
        next = request.next
        if request.progress == REQUEST_DONE:
            add64(&conn.plane.responses_queued, -1)
        if request.progress != REQUEST_OUT:
            if request.drop_state != NULL:
                request.drop_state(request)
            request_free(request)
        request = next
    conn.first = NULL
    conn.last = NULL
    if conn.waiting != NULL:
        request_free(conn.waiting)
        conn.waiting = NULL


cdef void malformed(Connection *conn, const char *what) noexcept nogil:
    refuse(conn, what)
    connection_close(conn)


# Timers

cdef void idle_fired(Timer *timer) noexcept nogil:
    cdef Connection layout  # only for the offset of the field
    cdef Connection *conn = <Connection *> (<char *> timer - (<char *> &layout.idle - <char *> &layout))
    cdef int64_t now_ms = conn.reactor.wheel.now_ms
    cdef int64_t due_ms = conn.active_ms + conn.plane.idle_ms
    if due_ms > now_ms:
        wheel_add(&conn.reactor.wheel, timer, due_ms)
    elif (conn.queued or conn.waiting != NULL) and not conn.want_write:  # the peer waits for the node
        wheel_add(&conn.reactor.wheel, timer, now_ms + conn.plane.idle_ms)
    else:
        add64(&conn.plane.expired_connections_killed, 1)
        connection_close(conn)


cdef void slow_fired(Timer *timer) noexcept nogil:
    cdef Connection layout  # only for the offset of the field
    cdef Connection *conn = <Connection *> (<char *> timer - (<char *> &layout.slow - <char *> &layout))
    cdef char text[120]
    if conn.hung_up:
        connection_close(conn)
        return
    if conn.frame == NULL:
        return
    if (conn.stall or load32(&conn.plane.budget.waiting) == 0
            or conn.frame.received - conn.slow_mark >= conn.plane.slow_frame_bytes):
        # The connection may stay open, because the processor does not read from it now, no other frame needs memory, or
        # the frame arrives fast enough.
        conn.slow_mark = conn.frame.received
        wheel_add(&conn.reactor.wheel, timer, conn.reactor.wheel.now_ms + conn.plane.slow_frame_ms)
        return
    snprintf(text, sizeof(text), "closed: %lld bytes came in %lld ms of a request of %d, while others wait for memory",
             <long long> (conn.frame.received - conn.slow_mark), <long long> conn.plane.slow_frame_ms, conn.frame_size)
    malformed(conn, text)


cdef void hold_fired(Timer *timer) noexcept nogil:
    cdef Connection layout  # only for the offset of the field
    cdef Connection *conn = <Connection *> (<char *> timer - (<char *> &layout.hold - <char *> &layout))
    conn.stall &= ~<uint32_t> (STALL_MUTED | STALL_DELAYED)
    make_ready(conn)


cdef void watch_slowness(Connection *conn) noexcept nogil:
    """Watches the speed of a frame that is being received. While other frames wait for memory, this frame must grow at
    a minimum speed. Otherwise a few clients that announce large frames and send little could hold the whole memory
    budget. While no frame waits for memory, only the idle timer limits the time, as in Apache Kafka. So a client on a
    slow link keeps its connection."""
    cdef Wheel *wheel = &conn.reactor.wheel
    if conn.hung_up:
        if conn.slow.back == NULL:
            wheel_add(wheel, &conn.slow, wheel.now_ms + conn.plane.half_closed_ms)
    elif conn.frame != NULL:
        if conn.slow.back == NULL:
            conn.slow_mark = 0
            wheel_add(wheel, &conn.slow, wheel.now_ms + conn.plane.slow_frame_ms)
    elif conn.slow.back != NULL:
        wheel_cancel(wheel, &conn.slow)


# Events and turns

cdef void connection_event(Connection *conn, uint32_t events) noexcept nogil:
    cdef Reactor *reactor = conn.reactor
    debug_assert(owner_is_me(&conn.reactor.owner), b"a connection is touched by its processor's thread only")
    if conn.is_closed:
        return
    if events & (EPOLLERR | EPOLLHUP):
        connection_close(conn)
        return
    reactor.now_ns = reactor.clock.monotonic_ns(reactor.clock.self)
    conn.drained = False
    if events & EPOLLOUT:
        conn.active_ms = reactor.wheel.now_ms  # the peer has read some of its answers
    if events & EPOLLRDHUP:
        conn.hung_up = True  # the processor still reads the bytes that the peer sent before it hung up
    connection_go_on(conn)


cdef void connection_go_on(Connection *conn) noexcept nogil:
    cdef Turn turn
    cdef Frame *frame
    debug_assert(owner_is_me(&conn.reactor.owner), b"a connection is touched by its processor's thread only")
    if conn.is_closed:
        return
    turn.at = NULL
    turn.end = NULL
    turn.bytes = 0
    turn.frames = 0
    turn.end_ns = conn.reactor.now_ns + TURN_NS
    turn.dry = conn.drained and conn.interest & EPOLLIN
    if conn.rest != NULL:
        turn.at = conn.rest.data + conn.rest_at
        turn.end = conn.rest.data + conn.rest.size
    while not conn.is_closed:
        if conn.waiting != NULL:
            conn.reactor.inflated_bytes = 0
            if not start(conn):
                break
            turn.frames += 1
            turn.bytes += conn.reactor.inflated_bytes
        if conn.closing or conn.stall or is_over(conn, &turn):
            break
        frame = cut(conn, &turn)
        if frame == NULL or not take_in(conn, frame):
            break
    if conn.is_closed:
        return
    conn.drained = turn.dry
    keep_rest(conn, &turn)
    if conn.doomed:
        connection_close(conn)
        return
    flush(conn)
    end_turn(conn, &turn)


cdef inline bint is_over(const Connection *conn, const Turn *turn) noexcept nogil:
    return (turn.frames >= conn.plane.turn_frames or turn.bytes >= conn.plane.turn_bytes
            or conn.reactor.now_ns >= turn.end_ns)


cdef void end_turn(Connection *conn, Turn *turn) noexcept nogil:
    cdef uint32_t interest = 0
    cdef epoll_event event
    if conn.is_closed:
        return
    if (conn.closing or conn.peer_done) and conn.queued == 0 and conn.waiting == NULL and (
        conn.rest == NULL or conn.closing
    ):
        connection_close(conn)
        return
    if conn.waiting != NULL:
        if may_start(conn) and not conn.stall & HOLDS:
            make_ready(conn)
    elif conn.rest != NULL and not conn.stall:
        make_ready(conn)
    watch_slowness(conn)
    if not conn.hung_up:
        interest |= EPOLLRDHUP
    if conn.want_write:
        interest |= EPOLLOUT
    if not conn.peer_done and not conn.closing:
        # A connection that stalls only briefly keeps its old events in the epoll set. If bytes arrive during the stall,
        # they cause one event that needs no work.
        if conn.stall == 0 and conn.waiting == NULL:
            interest |= EPOLLIN
        elif turn.frames:
            interest |= conn.interest & EPOLLIN
    if interest != conn.interest:
        event.events = interest
        event.data.ptr = conn
        conn.interest = interest
        if epoll_ctl(conn.reactor.epoll, EPOLL_CTL_MOD, conn.handle, &event) != 0:
            connection_close(conn)


cdef void memory_granted(Mail *mail) noexcept nogil:
    cdef Connection layout  # only for the offset of the field
    cdef Connection *conn = <Connection *> (<char *> mail - (<char *> &layout.reservation - <char *> &layout))
    conn.stall &= ~<uint32_t> STALL_MEMORY
    if conn.is_closed:
        budget_release(&conn.plane.budget, conn.reservation.size, conn.reservation.overdraft)
    else:
        go_on_with_frame(conn)
        make_ready(conn)
    release(conn)


# Requests

cdef Request *request_new(Connection *conn, Frame *frame) noexcept nogil:
    cdef Reactor *reactor = conn.reactor
    cdef Request *request = reactor.spare
    if request != NULL:
        reactor.spare = request.next
        reactor.spare_count -= 1
    else:
        request = <Request *> malloc(sizeof(Request))
        if request == NULL:
            return NULL
    memset(request, 0, sizeof(Request))
    request.answered.deliver = deliver_answer
    request.plane = conn.plane
    request.connection = conn
    request.inbox = &reactor.inbox
    request.wheel = &reactor.wheel
    request.settled = settled
    request.frame = frame
    request.frame_bytes = frame.size
    request.received_ns = reactor.now_ns
    request.listener = conn.listener
    request.port = conn.port
    memcpy(request.address, conn.address, 16)
    conn.refs += 1
    add64(&live_requests, 1)
    return request


cdef void request_free(Request *request) noexcept nogil:
    cdef Connection *conn = <Connection *> request.connection
    cdef Reactor *reactor = conn.reactor
    answer_clear(&request.answer)
    if request.frame != NULL:
        frame_release(request.frame)
    free(request.sample)
    if reactor.spare_count < SPARE_REQUESTS:
        request.next = reactor.spare
        reactor.spare = request
        reactor.spare_count += 1
    else:
        free(request)
    add64(&live_requests, -1)
    release(conn)


cdef bint take_in(Connection *conn, Frame *frame) noexcept nogil:
    """Reads the header of a whole frame. If the header is bad, closes the connection and returns False."""
    cdef Request *request = request_new(conn, frame)
    cdef ApiVersionRange *range_of
    cdef char text[120]
    if request == NULL:
        frame_release(frame)
        connection_close(conn)
        return False
    conn.waiting = request
    conn.judged = False
    if not read_header(conn.plane, request, frame):
        malformed(conn, "closed: a request ends within its header")
        return False
    if request.api_key < 0 or request.api_key >= API_KEYS or conn.plane.apis[request.api_key].highest < 0:
        snprintf(text, sizeof(text), "closed: this listener does not serve API key %d", <int> request.api_key)
        malformed(conn, text)
        return False
    range_of = &conn.plane.apis[request.api_key]
    if not is_served(conn.plane, request) and request.api_key != API_VERSIONS:
        snprintf(text, sizeof(text), "closed: this listener serves API key %d in versions %d to %d, not %d",
                 <int> request.api_key, <int> range_of.lowest, <int> range_of.highest, <int> request.api_version)
        malformed(conn, text)
        return False
    choose_sample(conn, request)
    return True


cdef inline void choose_sample(Connection *conn, Request *request) noexcept nogil:
    cdef int32_t every = load32(&conn.plane.sample_every)
    if every and sampler_chooses(&conn.link.sampler, every):
        request.sample = sample_new(every, request.client_id, request.client_id_size)
        if request.sample == NULL:
            add64(&conn.plane.samples_dropped, 1)


cdef inline bint may_start(Connection *conn) noexcept nogil:
    """Returns whether the waiting request may start. A Produce request may start while earlier Produce requests wait
    for acknowledgements. Any other request must wait until all requests before it have been answered."""
    if conn.unanswered and (conn.waiting.api_key != PRODUCE or conn.unanswered != conn.parked):
        return False
    return conn.queued < conn.plane.answers_depth and conn.queued_bytes < conn.plane.answers_bytes


cdef bint start(Connection *conn) noexcept nogil:
    """Starts the waiting request. Returns False if it must wait."""
    cdef Request *request = conn.waiting
    if conn.stall & HOLDS:
        return False
    if not may_start(conn):
        conn.stall |= STALL_ORDER
        return False
    conn.stall &= ~<uint32_t> STALL_ORDER
    if request.api_key < HOT_APIS and load_ptr(<void **> &conn.plane.hot[request.api_key]) != NULL:
        return serve(conn, request)
    if request.api_key == API_VERSIONS and answer_versions(request):
        request.dequeued_ns = conn.reactor.now_ns
        request.local_done_ns = conn.reactor.now_ns
        enqueue(conn, request, REQUEST_BLOCKED)
        complete(conn, request)
        return True
    return hand_over(conn, request)


cdef void complete(Connection *conn, Request *request) noexcept nogil:
    if request.progress == REQUEST_PARKED:
        conn.parked -= 1
    request.progress = REQUEST_DONE
    conn.unanswered -= 1
    conn.queued_bytes += request.answer.total
    if request.close_after:
        conn.stall |= STALL_ENDING
    elif request.mute_ms > 0:
        # The processor stops reading the connection now, but the mute time begins when the answer has been sent.
        conn.stall |= STALL_MUTED
    add64(&conn.plane.responses_queued, 1)


cdef bint serve(Connection *conn, Request *request) noexcept nogil:
    cdef Plane *plane = conn.plane
    cdef Reactor *reactor = conn.reactor
    cdef int outcome
    if not conn.judged:
        conn.judged = True
        gate_judge(<Gate *> load_ptr(<void **> &plane.gate), request.api_key, request.client_id,
                   request.client_id_size, &conn.verdict)
        if conn.verdict.delay_ms > 0:
            conn.stall |= STALL_DELAYED
            wheel_add(&reactor.wheel, &conn.hold, reactor.wheel.now_ms + conn.verdict.delay_ms)
            return False
    if conn.verdict.action == GATE_CLOSE:
        connection_close(conn)
        return False
    if conn.verdict.action == GATE_PUNT:
        return hand_over(conn, request)
    request.mute_ms = conn.verdict.mute_ms
    request.dequeued_ns = reactor.now_ns
    outcome = plane.hot[request.api_key](plane.hot_state[request.api_key], request, &conn.verdict)
    if outcome == SERVED_PUNT:
        conn.verdict.action = GATE_PUNT
        return hand_over(conn, request)
    if outcome == SERVED_CLOSE:
        malformed(conn, "closed: a request is malformed, or needs more memory than the node has")
        return False
    reactor.now_ns = reactor.clock.monotonic_ns(reactor.clock.self)
    reactor.inflated_bytes = request.inflated_bytes
    request.local_done_ns = reactor.now_ns
    conn.skew = request.skew
    enqueue(conn, request, REQUEST_BLOCKED)
    if outcome == SERVED:
        complete(conn, request)
    elif outcome == SERVED_PARKED:
        request.progress = REQUEST_PARKED
        conn.parked += 1
    return True


cdef void settled(Request *request, bint is_complete) noexcept nogil:
    """Handles a parked or blocked request that has returned to its processor."""
    cdef Connection *conn = <Connection *> request.connection
    cdef Reactor *reactor = conn.reactor
    if is_complete:
        reactor.now_ns = reactor.clock.monotonic_ns(reactor.clock.self)
        request.remote_done_ns = reactor.now_ns
        complete(conn, request)
    elif request.progress == REQUEST_BLOCKED:
        request.progress = REQUEST_PARKED
        conn.parked += 1
    make_ready(conn)


cdef void deliver_answer(Mail *mail) noexcept nogil:
    """Handles the mail of a request that a handler has answered."""
    cdef Request *request = <Request *> mail
    cdef Connection *conn = <Connection *> request.connection
    if conn.is_closed:
        request_free(request)
        return
    # The handler may have answered in the same turn in which the request was read, so the time must be read again.
    conn.reactor.now_ns = conn.reactor.clock.monotonic_ns(conn.reactor.clock.self)
    complete(conn, request)
    make_ready(conn)


# Answers

cdef void flush(Connection *conn) noexcept nogil:
    """Sends the answers that are complete and next in order, and frees the requests whose answers have been sent. This
    can close the connection."""
    cdef Request *request
    cdef int outcome
    if conn.first == NULL or conn.first.progress != REQUEST_DONE:
        conn.want_write = False
        return
    outcome = send_answers(conn.plane.env, conn.handle, conn.first, conn.reactor.now_ns, &conn.want_write)
    while not conn.is_closed and conn.first != NULL and conn.first.progress == REQUEST_DONE:
        request = conn.first
        if not answer_sent(request):
            break
        finish(conn, request)
    if outcome < 0:
        connection_close(conn)


cdef void finish(Connection *conn, Request *request) noexcept nogil:
    """Removes the first request of the queue, whose answer has been sent."""
    cdef Reactor *reactor = conn.reactor
    cdef ApiMetrics **metrics = &conn.link.apis[request.api_key]
    conn.first = request.next
    if conn.first == NULL:
        conn.last = NULL
    conn.queued -= 1
    conn.queued_bytes -= request.answer.total
    add64(&conn.plane.responses_queued, -1)
    conn.active_ms = reactor.wheel.now_ms
    if metrics[0] == NULL:
        store_ptr(<void **> metrics, calloc(1, sizeof(ApiMetrics)))
    if metrics[0] != NULL:
        note_stages(metrics[0], request, reactor.now_ns)
    if request.sample != NULL:
        keep_sample(&conn.link.sampler, request, reactor.now_ns)
    if request.mute_ms > 0 and not request.close_after:
        wheel_add(&reactor.wheel, &conn.hold, reactor.wheel.now_ms + request.mute_ms)
    if request.close_after:
        connection_close(conn)
    request_free(request)
