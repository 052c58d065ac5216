"""A connection: reads bytes, cuts them into frames, serves requests in order, sends answers. Everything here runs on
the thread of its reactor.

These hold a reference to a connection: the reactor's list, each Request, and a memory reservation whose mail may be
under way.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.assertions cimport Owner
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.plane.driven cimport DrivenList
from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.memory cimport Frame, Reservation
from kafkacore._fast.plane.plane cimport API_KEYS, ApiMetrics, Plane, Request
from kafkacore._fast.wait.ring cimport RingWaiter
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.wait.timer cimport Timer, Wheel

cdef enum:
    # The most bytes of one read of small frames, and the most uncut bytes that a stalled connection keeps, which the
    # budget does not count.
    SCRATCH_BYTES = 16384
    # After a frame of this size the connection reads the next prefix by itself, and then the body straight to its
    # place.
    BIG_FRAME_BYTES = 8192
    SPARE_REQUESTS = 256      # the most of them that a reactor keeps for reuse

# Why a connection is not read or served.
cdef enum:
    STALL_MEMORY = 1          # its frame waits for memory
    STALL_ORDER = 2           # `waiting` may not start before earlier answers are sent
    STALL_RING = 4            # the plane's ring is full
    STALL_MUTED = 8           # a throttled client, until `hold` fires
    STALL_DELAYED = 16        # the gate delays `waiting`, until `hold` fires

ctypedef struct Reactor       # one epoll set and the connections that it drives
ctypedef struct Connection

# A plane, as one reactor serves it.
ctypedef struct Link:
    RingWaiter waiter         # first
    Link *next
    Reactor *reactor
    Plane *plane              # counted
    Connection *oldest        # the line of connections that wait for room on the ring
    Connection *newest
    ApiMetrics *apis[API_KEYS]  # made at first use
    int32_t connections

ctypedef struct Reactor:
    Owner owner               # the processor's thread, for assertions
    Inbox inbox
    Wheel wheel
    const Clock *clock
    int epoll
    int64_t now_ns
    int64_t turns             # atomic: odd while a turn is under way (plane.pxd)
    int32_t stopping          # atomic
    int32_t count             # of connections; atomic
    Connection *first
    Connection *ready         # connections to continue in this turn or the next
    Connection **ready_end
    Connection *closed        # released at the end of the turn
    DrivenList driven         # its other work
    Mutex links_lock          # only the reactor's thread changes the list; others read it under the lock
    Link *links
    Mail sweep                # asks the reactor to close connections of draining planes
    Request *spare
    int32_t spare_count
    uint8_t *scratch          # SCRATCH_BYTES
    int64_t inflated_bytes    # set by the request that was started last

ctypedef struct Connection:
    Mail arrive               # first: from the acceptor
    Timer idle
    Timer slow                # ends the wait for a slow frame or for a half-closed peer
    Timer hold                # ends a mute or a delay
    Reservation reservation
    int32_t refs
    int handle
    Plane *plane              # counted
    Link *link
    Reactor *reactor
    Connection *next          # of the reactor
    Connection *previous
    Connection *next_ready
    Connection *next_closed
    Connection *next_for_ring
    uint32_t interest         # the events for which epoll watches it
    uint32_t stall            # STALL_ bits
    bint is_ready
    bint is_closed
    bint doomed               # the caller of this turn closes it
    bint closing              # closes when its answers are sent
    bint peer_done            # the peer sends no more
    bint big
    bint want_write
    bint judged               # `verdict` holds the gate's verdict on `waiting`
    bint hung_up              # epoll reported that the peer sends no more
    bint drained              # the socket was empty; epoll reports new bytes
    int16_t prefix_size       # bytes of `prefix` that are received
    int32_t frame_size        # the size in the prefix
    int64_t slow_mark         # bytes of `frame` that were received when its pace was last checked
    uint8_t prefix[4]
    int8_t skew               # where the next frame's data begins in a cache line, see Request
    Frame *frame              # being received
    Frame *rest               # bytes that are read and not cut
    int64_t rest_at
    Request *waiting          # cut and not started
    Verdict verdict
    Request *first            # requests that are started and not answered to the last byte, in order
    Request *last
    int32_t queued            # how many
    int32_t unanswered        # requests without a complete answer
    int32_t parked            # ... whose effect is done
    int64_t queued_bytes      # of complete answers that are not sent
    int64_t active_ms
    int32_t listener
    uint8_t address[16]
    int32_t port

# Continues the ready connections, `most` at a time; returns how many it continued.
cdef int reactor_go_on(Reactor *reactor, int most) noexcept nogil
cdef void reactor_bury(Reactor *reactor) noexcept nogil  # releases closed connections at the end of a turn
cdef void reactor_close_all(Reactor *reactor) noexcept nogil
cdef void reactor_swept(Mail *mail) noexcept nogil  # reactor.sweep: closes idle connections of draining planes

# How many connections all planes of this process have.
cdef int64_t connections_open() noexcept nogil
# For an acceptor: makes a connection with one reference, which `reactor` takes over when `arrive` is posted to its
# inbox. From here on the connection owns its places in the plane's limits. NULL when memory runs out.
cdef Connection *connection_new(Reactor *reactor, Plane *plane, int handle) noexcept nogil
cdef void connection_event(Connection *conn, uint32_t events) noexcept nogil
cdef void connection_go_on(Connection *conn) noexcept nogil
cdef void connection_close(Connection *conn) noexcept nogil


# Continues the connection in this turn of its reactor or in the next.
cdef inline void make_ready(Connection *conn) noexcept nogil:
    if not conn.is_ready and not conn.is_closed:
        conn.is_ready = True
        conn.refs += 1
        conn.next_ready = NULL
        conn.reactor.ready_end[0] = conn
        conn.reactor.ready_end = &conn.next_ready


# Puts the waiting request at the end of the queue of answers.
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
