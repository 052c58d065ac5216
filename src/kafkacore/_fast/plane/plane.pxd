"""What a listener's connections share: limits, memory, ring, gate, hot APIs, metrics. One native Plane for each
listener group of a node (data, controller, control); `network/` makes it and keeps it until the last connection is
gone.

Who touches what: a Request belongs to its connection's processor, but for the time from its push on the ring to the
mail that brings its answer back, when the handler owns it. What a plane publishes (gate, table, ApiVersions answers) is
immutable and swapped whole; a processor reads it within one turn, and the old one goes when each processor has ended
the turn it was in: processors count their turns, odd while one is under way.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t

from kafkacore._fast.plane.answer cimport Answer
from kafkacore._fast.world.environment cimport Env, Environment
from kafkacore._fast.plane.gate cimport Gate, GatePolicy, Verdict
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.memory cimport Budget, Frame
from kafkacore._fast.wait.ring cimport Ring
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.log.partition_table cimport PartitionTable
from kafkacore._fast.wait.timer cimport Wheel

cdef enum:
    HOT_APIS = 15         # keys 0 to 14, Produce to SyncGroup; a NULL entry is not hot
    API_KEYS = 96         # keys from 0 that a plane may serve
    STAGES = 6            # queue, local, remote, throttle, response queue, send
    STAGE_BUCKETS = 40
    NOTICES = 256         # lines that wait for Python; more are counted only
    MAX_LISTENERS = 64    # of one plane
    TURN_NS = 1000000     # how long one connection, or one request, is served before others have their turn

ctypedef struct Plane

# One request from its cut out of the connection to its answer's last byte. Its answer slot is reserved before the
# request is handed on (KAFKA-702): it is the request itself, in the connection's queue.
ctypedef struct Request:
    Mail answered         # first: a handler posts this to the processor's inbox
    Plane *plane
    void *connection      # counted
    Request *next         # in the connection's queue of answers
    Inbox *inbox          # of its processor
    Wheel *wheel          # likewise
    void (*settled)(Request *request, bint complete) noexcept nogil  # see request_answered, request_unblocked
    int32_t listener      # which of the plane's listeners it came by
    uint8_t address[16]   # of the peer: IPv6, or IPv4 mapped into it
    int32_t port
    int16_t progress      # REQUEST_*; owner's thread
    Frame *frame          # counted; NULL when its handler has let go of it
    int64_t frame_bytes   # its size
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t *client_id        # inside the frame; NULL when null, or when that is gone
    int32_t client_id_size
    int32_t header_size             # the body starts here
    int64_t inflated_bytes          # that serving it went through; its processor counts them against the turn
    int8_t skew                     # into a cache line: where the data of a like request had better begin
    Answer answer
    bint close_after                # the answer is the connection's last
    bint no_answer                  # acks=0
    int32_t mute_ms
    int64_t received_ns             # metrics: stage boundaries
    int64_t dequeued_ns
    int64_t local_done_ns
    int64_t remote_done_ns
    int64_t sending_ns
    void *state                     # of the hot API, between park and resume
    void (*drop_state)(Request *request) noexcept nogil  # connection gone: give everything back

cdef enum:
    REQUEST_WAITING = 0   # cut, not started
    REQUEST_BLOCKED = 1   # hot, no or partial effect
    REQUEST_PARKED = 2    # hot, its effect is done
    REQUEST_OUT = 3       # on the ring or with a handler
    REQUEST_DONE = 4      # its answer is complete

cdef enum:
    DRAIN_ANSWERED = 1    # connections close when they are answered
    DRAIN_AT_ONCE = 2

cdef enum:
    SERVED = 0            # the answer is complete
    SERVED_PARKED = 1     # its effect is done, the answer comes later: a following Produce may be served
    SERVED_BLOCKED = 2    # no or partial effect so far: nothing else of this connection is served until it comes back
    SERVED_PUNT = 3       # untouched; goes on the ring
    SERVED_CLOSE = 4      # malformed: log one line, close

# A hot API. `verdict` is the gate's. Runs on the connection's processor; may patch the frame's bytes. A parked request
# comes back by `request_answered` on the same processor, never from within the call.
ctypedef int (*Serve)(void *state, Request *request, const Verdict *verdict) noexcept nogil

ctypedef struct StageHistogram:
    int64_t buckets[STAGE_BUCKETS]  # powers of two of microseconds
    int64_t count
    int64_t sum_us

# Of one API, one plane and one processor: that processor alone writes, anybody reads.
ctypedef struct ApiMetrics:
    int64_t requests
    int64_t request_bytes
    int64_t response_bytes
    StageHistogram stages[STAGES]
    StageHistogram total

# Which versions of an API this plane takes: everything else is refused as Kafka does.
ctypedef struct ApiVersionRange:
    int16_t lowest
    int16_t highest       # below `lowest`: the API is not served here
    int16_t flexible_from  # versions from here on have request header 2

# ApiVersions answers (bodies without header) by version, made by Python whenever features change.
ctypedef struct VersionAnswers:
    int32_t refs
    int32_t count         # versions 0 to count - 1
    uint8_t **bodies
    int32_t *sizes

# How many connections an address has, for max.connections.per.ip.
ctypedef struct AddressCount:
    AddressCount *next
    uint8_t address[16]   # IPv6, or IPv4 mapped into it
    int32_t count
    int32_t limit         # an override, -1: max_connections_per_ip

# max.connection.creation.rate; covered by the acceptor's lock.
ctypedef struct ArrivalRate:
    int64_t per_second    # 0: unlimited
    double tokens
    int64_t filled_ns

ctypedef struct Plane:
    int32_t refs          # atomic: one for network/, one for each connection
    Env *env              # lives longer
    Ring *ring
    Budget budget
    Gate *gate            # published
    PartitionTable *table  # published
    VersionAnswers *versions  # published; NULL: ApiVersions goes to the handler
    Serve hot[HOT_APIS]
    void *hot_state[HOT_APIS]
    ApiVersionRange apis[API_KEYS]
    int64_t max_request_bytes       # socket.request.max.bytes
    int64_t idle_ms                 # connections.max.idle.ms
    # While other frames wait for memory, one that has grown by less than these bytes in this time loses its connection.
    int64_t slow_frame_ms
    int64_t slow_frame_bytes
    int64_t half_closed_ms          # how long answers go on for a peer that sends no more
    int32_t max_connections         # atomic, as the next one: both may change
    int32_t max_connections_per_ip
    int32_t answers_depth           # answers that a connection may await
    int64_t answers_bytes
    int32_t turn_frames             # a connection's share of one turn, beside TURN_NS
    int64_t turn_bytes              # received, and of records as they are inflated
    int32_t send_buffer_bytes       # socket.send.buffer.bytes; -1: the system's
    int32_t receive_buffer_bytes
    int32_t draining                # atomic: 0 or DRAIN_*
    int32_t connection_count        # atomic
    int32_t requests_out            # atomic: on the ring or with a handler
    int64_t expired_connections_killed   # atomic counters from here on
    int64_t refused_connections
    int64_t malformed_frames
    int64_t responses_queued
    int64_t notices_dropped
    int32_t notices_waiting
    Inbox notices         # one logged line each
    Mail *notices_taken   # the thread of the handler loop
    Mutex addresses_lock
    AddressCount *addresses[256]
    ArrivalRate arrivals            # of its listeners together, but for exempt ones
    int32_t listener_connections[MAX_LISTENERS]  # atomic; by the listener's number

ctypedef struct Notice:
    Mail mail             # first
    Plane *plane
    char text[232]

cdef void plane_hold(Plane *plane) noexcept nogil
cdef void plane_release(Plane *plane) noexcept nogil
# A line for the log: who (16 byte address and port; NULL: nobody in particular), what. Any thread.
cdef void plane_notice(Plane *plane, const uint8_t *address, int32_t port, const char *what) noexcept nogil
# 0, or which limit refuses the newcomer: -1 max.connections.per.ip. Takes a place that address_leave gives back.
cdef int address_enter(Plane *plane, const uint8_t *address) noexcept nogil
cdef void address_leave(Plane *plane, const uint8_t *address) noexcept nogil

cdef void request_answered(Request *request) noexcept nogil  # owner's thread: the answer is complete
cdef void request_unblocked(Request *request) noexcept nogil  # owner's thread: SERVED_BLOCKED became SERVED_PARKED
# Owner's thread, once nothing points into the frame any more: its memory goes back to the plane.
cdef void request_release_frame(Request *request) noexcept nogil
cdef void request_post_answer(Request *request) noexcept nogil  # any thread: the answer of one that was on the ring
cdef Inbox *request_inbox(Request *request) noexcept nogil  # of its processor, for a Parked
cdef Wheel *request_wheel(Request *request) noexcept nogil  # likewise, for its deadline; owner's thread only
cdef PartitionTable *request_table(Request *request) noexcept nogil  # valid until the Serve or resume returns


cdef class HotApi:
    """A Serve and its state, for NativePlane.install. `keep` is what the state belongs to."""
    cdef Serve serve
    cdef void *state
    cdef object keep


cdef object hot_api(Serve serve, void *state, object keep)


cdef enum:
    MAX_PROCESSORS = 64   # that serve one plane


cdef class NativePlane:
    """Owns one count of a Plane."""
    cdef Plane *plane
    cdef readonly Environment environment
    cdef readonly object name
    cdef int pid
    cdef dict published   # what the Plane points to, by field
    cdef list retired     # (owner, turns when it was replaced)
    cdef const int64_t *turns[MAX_PROCESSORS]
    cdef int turn_count
    cdef list processors
    cdef int check(self) except -1
    cdef int configure(self, dict limits) except -1
    cdef int watch_turns(self, const int64_t *turns, object processor) except -1
    # For the owners of what is published; `owner` is kept until no processor can be reading `what`.
    cdef int publish(self, str field, void **place, void *what, object owner) except -1
    cdef int publish_table(self, PartitionTable *table, object owner) except -1


cdef class InboundRequest:
    """A request that came over the ring: Python owns it until it is answered."""
    cdef Request *request
    cdef readonly NativePlane plane
    cdef void finish(self) noexcept
    cdef int pending(self) except -1
