"""A connection: bytes in, frames cut, requests served in order, answers out. Everything here runs on one thread, its
home's.

The count: one for the home's list, one for each Request, one for a memory reservation whose mail may be under way.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.memory cimport Frame, Reservation
from kafkacore._fast.plane.plane cimport API_KEYS, ApiMetrics, Plane, Request
from kafkacore._fast.wait.ring cimport RingWaiter
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.wait.timer cimport Timer, Wheel

cdef enum:
    # one read of small frames; also the most that a stalled connection keeps uncut, unbudgeted
    SCRATCH_BYTES = 16384
    # after a frame of this size the next one's prefix is read by itself, and the body in place
    BIG_FRAME_BYTES = 8192
    SPARE_REQUESTS = 256      # that a home keeps for reuse

# Why a connection is not read or served.
cdef enum:
    STALL_MEMORY = 1          # waits for its frame's reservation
    STALL_ORDER = 2           # `waiting` may not start before answers are out
    STALL_RING = 4            # the plane's ring is full
    STALL_MUTED = 8           # until `hold_until_ms`
    STALL_DELAYED = 16        # the gate holds `waiting` back, likewise

ctypedef struct Home          # what of a processor its connections use
ctypedef struct Connection

# A plane as one home serves it.
ctypedef struct Link:
    RingWaiter waiter         # first
    Link *next
    Home *home
    Plane *plane              # counted
    Connection *oldest        # that wait for room on the ring, first come first served
    Connection *newest
    ApiMetrics *apis[API_KEYS]  # made at first use
    int32_t connections

ctypedef struct Home:
    Inbox inbox
    Wheel wheel
    const Clock *clock
    int epoll
    int64_t now_ns
    int64_t turns             # atomic: odd while a turn is under way (plane.pxd)
    int32_t stopping          # atomic
    int32_t count             # of connections; atomic
    Connection *first
    Connection *ready         # to be gone on with in this turn or the next
    Connection **ready_end
    Connection *closed        # their count in the home's list is given back at the end of the turn
    Mutex links_lock          # the home's thread alone changes the list; others read it under the lock
    Link *links
    Mail sweep                # somebody wants draining planes looked after
    Request *spare
    int32_t spare_count
    uint8_t *scratch          # SCRATCH_BYTES
    int64_t inflated_bytes    # by the request that was started last

ctypedef struct Connection:
    Mail arrive               # first: from the acceptor
    Timer idle
    Timer slow                # a frame that stays out, a half-closed peer
    Timer hold                # muted or delayed
    Reservation reservation
    int32_t refs
    int handle
    Plane *plane              # counted
    Link *link
    Home *home
    Connection *next          # of the home
    Connection *previous
    Connection *next_ready
    Connection *next_closed
    Connection *next_for_ring
    uint32_t interest         # what epoll is asked for
    uint32_t stall            # STALL_ bits
    bint is_ready
    bint is_closed
    bint doomed               # to be closed when the turn comes back
    bint closing              # once the answers are out
    bint peer_done            # it sends no more
    bint big
    bint want_write
    bint judged               # the gate's word on `waiting` is `verdict`
    bint hung_up              # epoll has told that it sends no more
    bint drained              # the socket had nothing left; epoll tells when it has again
    int16_t prefix_size       # received of `prefix`
    int32_t frame_size        # what the prefix says
    int64_t slow_mark         # bytes of `frame` that were there when its slowness was last looked at
    uint8_t prefix[4]
    int8_t skew               # of the next frame's data, see Request
    Frame *frame              # under way
    Frame *rest               # read and not cut yet
    int64_t rest_at
    Request *waiting          # cut and not started
    Verdict verdict
    Request *first            # started and not answered to the last byte, in order
    Request *last
    int32_t queued            # of them
    int32_t unanswered        # whose answer is not complete
    int32_t parked            # ... but whose effect is done
    int64_t queued_bytes      # complete and not sent
    int64_t active_ms
    int32_t listener
    uint8_t address[16]
    int32_t port

# A round of the ready connections, or the first `most` of them; how many.
cdef int home_go_on(Home *home, int most) noexcept nogil
cdef void home_bury(Home *home) noexcept nogil  # at the end of a turn
cdef void home_close_all(Home *home) noexcept nogil
cdef void home_swept(Mail *mail) noexcept nogil  # home.sweep: closes what is idle on draining planes

# For an acceptor: a connection of count 1 that `home` takes over when `arrive` is posted to its inbox. The places in
# the plane's limits are its own from here on. NULL when memory is out.
cdef Connection *connection_new(Home *home, Plane *plane, int handle) noexcept nogil
cdef void connection_event(Connection *conn, uint32_t events) noexcept nogil
cdef void connection_go_on(Connection *conn) noexcept nogil
cdef void connection_close(Connection *conn) noexcept nogil
