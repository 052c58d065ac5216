"""A connection reads bytes, cuts them into frames (size-prefixed requests), serves the requests in order, and sends the
answers. A processor is a thread that serves connections, and a reactor is its event loop. A turn is one pass of this
loop. Any thread may call `connection_new` and `connections_open`. All other functions run on the thread of the
connection's reactor.

Each of the following holds a reference to the connection: the reactor's list, each `Request`, and a memory reservation
until its grant has arrived. The grant is a message to the reactor (mail.pxd). plane.pxd defines the plane, its ring,
and the hot APIs, which native code serves. memory.pxd defines the budget. gate.pxd defines the gate, which can delay
requests.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.assertions cimport Owner
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.plane.driven cimport DrivenList
from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.memory cimport Frame, Reservation
from kafkacore._fast.plane.plane cimport API_KEYS, ApiMetrics, Plane, Request
from kafkacore._fast.plane.samples cimport Sampler
from kafkacore._fast.wait.ring cimport RingWaiter
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.wait.timer cimport Timer, Wheel

cdef enum:
    # The maximum size of one read of small frames. A stalled connection keeps at most this many bytes that are not cut
    # into frames yet. The budget does not count these bytes.
    SCRATCH_BYTES = 16384
    # After a frame of this size or more, the connection first reads only the next size prefix. Then it reads the body
    # directly into its final place.
    BIG_FRAME_BYTES = 8192
    SPARE_REQUESTS = 256      # a reactor keeps at most this many free Requests for reuse

# The reasons why a processor does not read from a connection or does not serve its requests.
cdef enum:
    STALL_MEMORY = 1          # the connection's frame waits for memory from the plane's budget
    STALL_ORDER = 2           # the request in `waiting` must not start before earlier answers have been sent
    STALL_RING = 4            # the plane's ring, the queue of requests for Python, is full
    STALL_MUTED = 8           # the client is throttled until the timer `hold` ends
    STALL_DELAYED = 16        # the gate delays the request in `waiting` until the timer `hold` ends
    STALL_ENDING = 32         # the connection closes after an answer that has not been sent yet

ctypedef struct Reactor       # an epoll set and the connections that it watches
ctypedef struct Connection

# The part of a plane that belongs to one reactor.
ctypedef struct Link:
    RingWaiter waiter         # must be the first field
    Link *next
    Reactor *reactor
    Plane *plane              # holds a reference
    Connection *oldest        # the queue of connections that wait for room on the ring
    Connection *newest
    ApiMetrics *apis[API_KEYS]  # created at first use
    Sampler sampler
    int32_t connections

ctypedef struct Reactor:
    Owner owner               # the processor's thread, for assertions
    Inbox inbox
    Wheel wheel
    const Clock *clock
    int epoll
    int64_t now_ns
    int64_t turns             # atomic: odd during a turn (plane.pxd)
    int32_t stopping          # atomic
    int32_t count             # the number of connections; atomic
    Connection *first
    Connection *ready         # connections to continue in this turn or the next
    Connection **ready_end
    Connection *closed        # released at the end of the turn
    DrivenList driven         # other work of the processor
    Mutex links_lock  # guards `links`, which only the reactor's thread changes
    Link *links
    Mail sweep                # asks the reactor to close connections of draining planes
    Request *spare
    int32_t spare_count
    uint8_t *scratch          # SCRATCH_BYTES
    int64_t inflated_bytes    # set by the last request that was started

ctypedef struct Connection:
    Mail arrive               # must be the first field; the acceptor posts it
    Timer idle
    Timer slow                # limits the wait for a slow frame, or for a peer that has half-closed the connection
    Timer hold                # ends a mute or a delay
    Reservation reservation
    int32_t refs
    int handle
    Plane *plane              # holds a reference
    Link *link
    Reactor *reactor
    Connection *next          # next in the reactor's list
    Connection *previous
    Connection *next_ready
    Connection *next_closed
    Connection *next_for_ring
    uint32_t interest         # the events that epoll reports for this connection
    uint32_t stall            # STALL_ bits
    bint is_ready
    bint is_closed
    bint doomed               # the code that now serves the connection must close it
    bint closing              # the connection closes when its answers have been sent
    bint peer_done            # the peer has sent its last byte
    bint big
    bint want_write
    bint judged               # `verdict` holds the gate's verdict on `waiting`
    bint hung_up              # epoll has reported that the peer closed its sending side
    bint drained              # the socket was empty, and epoll will report new bytes
    int16_t prefix_size       # bytes of `prefix` that have been received
    int32_t frame_size        # the size in the prefix
    int64_t slow_mark         # the number of received bytes of `frame` at the last check of its speed
    uint8_t prefix[4]
    int8_t skew               # the place in a cache line where the next frame's data begins (see `Request.skew`)
    Frame *frame              # the frame that is being received
    Frame *rest               # bytes that have been read but not cut into frames
    int64_t rest_at
    Request *waiting          # the request that was cut from the received bytes but not started
    Verdict verdict
    Request *first            # the queue: started requests whose answers have not been sent completely
    Request *last
    int32_t queued            # the number of requests in this queue
    int32_t unanswered        # the number of these requests that have no complete answer yet
    int32_t parked  # the number of unanswered requests that have had their effect, for example an append
    int64_t queued_bytes      # bytes of complete answers that have not been sent
    int64_t active_ms
    int32_t listener
    uint8_t address[16]
    int32_t port

# Continues at most `most` ready connections. Returns the number of connections that it continued.
cdef int reactor_go_on(Reactor *reactor, int most) noexcept nogil
cdef void reactor_bury(Reactor *reactor) noexcept nogil  # releases closed connections at the end of a turn
cdef void reactor_close_all(Reactor *reactor) noexcept nogil
cdef void reactor_swept(Mail *mail) noexcept nogil  # for `reactor.sweep`: closes idle connections of draining planes

# Returns the number of connections of all planes in this process. Any thread may call it.
cdef int64_t connections_open() noexcept nogil
# Creates a connection. An acceptor calls this function. The connection has one reference. When the acceptor posts
# `arrive` to the inbox of `reactor`, the reactor takes over this reference. From then on, the connection counts against
# the plane's limits until it is freed. Returns NULL if no memory is left.
cdef Connection *connection_new(Reactor *reactor, Plane *plane, int handle) noexcept nogil
cdef void connection_event(Connection *conn, uint32_t events) noexcept nogil
cdef void connection_go_on(Connection *conn) noexcept nogil
cdef void connection_close(Connection *conn) noexcept nogil


# Lets the connection continue in the current turn of its reactor or in the next one.
cdef inline void make_ready(Connection *conn) noexcept nogil:
    if not conn.is_ready and not conn.is_closed:
        conn.is_ready = True
        conn.refs += 1
        conn.next_ready = NULL
        conn.reactor.ready_end[0] = conn
        conn.reactor.ready_end = &conn.next_ready


# Moves the request in `waiting` to the end of the connection's queue.
cdef inline void enqueue(Connection *conn, Request *request, int16_t progress) noexcept nogil:
    conn.waiting = NULL
    request.progress = progress
    request.next = NULL
    if conn.last != NULL:
        conn.last.next = request
    else:
        conn.first = request
    conn.last = request
    conn.queued += 1
    conn.unanswered += 1
