"""A plane: the limits, memory, ring, gate, hot APIs and metrics that the connections of a listener group share. A node
has one native Plane for each group (data, controller, control); `network/` makes it and keeps it until its last
connection is closed.

A Request belongs to its connection's processor. From its push onto the ring until the mail with its answer arrives, the
handler owns it. Published values (gate, partition table, ApiVersions answers, endpoints) are immutable and replaced as
a whole. A processor reads them within one turn; the plane frees an old value when each processor has ended the turn in
which it could have read it. Processors count their turns; the count is odd during a turn.
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
    NOTICES = 256         # log lines that may wait for Python; lines beyond that are only counted
    MAX_LISTENERS = 64    # of one plane
    TURN_NS = 1000000     # how long a processor serves one connection, or one request, before others have their turn

ctypedef struct Plane

# One request, from the frame that the connection cut to the last byte of its answer. The request itself, in the
# connection's queue, is the slot of its answer; so answers keep the order of the requests (KAFKA-702).
ctypedef struct Request:
    Mail answered         # first: a handler posts this to the processor's inbox
    Plane *plane
    void *connection      # counted
    Request *next         # in the connection's queue of answers
    Inbox *inbox          # its processor's
    Wheel *wheel          # its processor's
    void (*settled)(Request *request, bint complete) noexcept nogil  # see request_answered, request_unblocked
    int32_t listener      # the number of the listener that accepted its connection
    uint8_t address[16]   # the peer's: IPv6, or IPv4 mapped into it
    int32_t port
    int16_t progress      # REQUEST_*; owner's thread
    Frame *frame          # counted; NULL when it was released early
    int64_t frame_bytes   # the frame's size
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t *client_id        # inside the frame; NULL when null, or when the frame was released
    int32_t client_id_size
    int32_t header_size             # the body starts here
    int64_t inflated_bytes          # of its records; its processor counts them against the turn
    int8_t skew                     # where in a cache line the data of the next such request should begin
    Answer answer
    bint close_after                # the connection closes after this answer
    bint no_answer                  # acks=0
    int32_t mute_ms
    int64_t received_ns             # metrics: stage boundaries
    int64_t dequeued_ns
    int64_t local_done_ns
    int64_t remote_done_ns
    int64_t sending_ns
    void *state                     # the hot API's, between park and resume
    void (*drop_state)(Request *request) noexcept nogil  # the connection is closed: frees `state`

cdef enum:
    REQUEST_WAITING = 0   # cut, not started
    REQUEST_BLOCKED = 1   # hot; it had no effect yet, or a part of it
    REQUEST_PARKED = 2    # hot; its effect is done
    REQUEST_OUT = 3       # on the ring or with a handler
    REQUEST_DONE = 4      # its answer is complete

cdef enum:
    DRAIN_ANSWERED = 1    # connections close after their answers
    DRAIN_AT_ONCE = 2

cdef enum:
    SERVED = 0            # the answer is complete
    SERVED_PARKED = 1     # its effect is done, the answer comes later; a following Produce may be served
    SERVED_BLOCKED = 2    # it had no effect yet, or a part of it; nothing else of its connection is served before it
    SERVED_PUNT = 3       # untouched; it goes onto the ring
    SERVED_CLOSE = 4      # malformed: log one line and close

# A hot API. `verdict` is the gate's. Runs on the connection's processor, and may patch the frame's bytes. A parked
# request returns by `request_answered` on the same processor, never from within the call.
ctypedef int (*Serve)(void *state, Request *request, const Verdict *verdict) noexcept nogil

ctypedef struct StageHistogram:
    int64_t buckets[STAGE_BUCKETS]  # powers of two of microseconds
    int64_t count
    int64_t sum_us

# For one API, one plane and one processor: only that processor writes, any thread reads.
ctypedef struct ApiMetrics:
    int64_t requests
    int64_t request_bytes
    int64_t response_bytes
    StageHistogram stages[STAGES]
    StageHistogram total

# The versions of an API that this plane serves. It refuses others as Kafka does.
ctypedef struct ApiVersionRange:
    int16_t lowest
    int16_t highest       # when below `lowest`, this plane does not serve the API
    int16_t flexible_from  # versions from here on have request header 2

# ApiVersions answers (bodies without header) by version. Python makes them whenever features change.
ctypedef struct VersionAnswers:
    int32_t refs
    int32_t count         # versions 0 to count - 1
    uint8_t **bodies
    int32_t *sizes

# The number of connections from an address, for max.connections.per.ip.
ctypedef struct AddressCount:
    AddressCount *next
    uint8_t address[16]   # IPv6, or IPv4 mapped into it
    int32_t count
    int32_t limit         # an override; -1: max_connections_per_ip

# max.connection.creation.rate. The acceptor's lock guards it.
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
    # While other frames wait for memory, a frame must grow by these bytes in this time, or its connection is closed.
    int64_t slow_frame_ms
    int64_t slow_frame_bytes
    int64_t half_closed_ms          # how long a peer that sends no more still gets answers
    int32_t max_connections         # atomic: may change
    int32_t max_connections_per_ip  # atomic: may change
    int32_t answers_depth           # how many requests of a connection may wait for their answers
    int64_t answers_bytes           # how many bytes of its complete answers may wait for the socket
    int32_t turn_frames             # a connection's share of one turn, beside TURN_NS
    int64_t turn_bytes              # received bytes, and the inflated bytes of records
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
    Inbox notices         # lines for the log
    Mail *notices_taken   # only the thread of the handler loop
    Mutex addresses_lock
    AddressCount *addresses[256]
    ArrivalRate arrivals            # of its listeners together, except exempt ones
    int32_t listener_connections[MAX_LISTENERS]  # atomic; by the listener's number

ctypedef struct Notice:
    Mail mail             # first
    Plane *plane
    char text[232]

cdef void plane_hold(Plane *plane) noexcept nogil
cdef void plane_release(Plane *plane) noexcept nogil


cdef void request_answered(Request *request) noexcept nogil  # owner's thread: request.answer is complete
cdef void request_unblocked(Request *request) noexcept nogil  # owner's thread: SERVED_BLOCKED became SERVED_PARKED
# Owner's thread: gives the frame's memory back to the plane. Nothing may point into the frame then.
cdef void request_release_frame(Request *request) noexcept nogil
cdef void request_post_answer(Request *request) noexcept nogil  # any thread: the answer of a request from the ring
cdef Inbox *request_inbox(Request *request) noexcept nogil  # its processor's, for a Parked
cdef Wheel *request_wheel(Request *request) noexcept nogil  # its processor's, for a deadline; owner's thread only
cdef PartitionTable *request_table(Request *request) noexcept nogil  # valid until the Serve or resume returns


cdef class HotApi:
    """A Serve and its state, for NativePlane.install. `keep` owns the state."""
    cdef Serve serve
    cdef void *state
    cdef object keep


cdef object hot_api(Serve serve, void *state, object keep)


cdef enum:
    MAX_PROCESSORS = 64   # processors that serve one plane


cdef class NativePlane:
    """Owns one reference to a Plane."""
    cdef Plane *plane
    cdef readonly Environment environment
    cdef readonly object name
    cdef int pid
    cdef dict published   # the owner of each published value, by field
    cdef list retired     # (owner, each processor's turns when it was replaced)
    cdef const int64_t *turns[MAX_PROCESSORS]
    cdef int turn_count
    cdef list processors
    cdef int check(self) except -1
    cdef int configure(self, dict limits) except -1
    cdef int watch_turns(self, const int64_t *turns, object processor) except -1
    # Points `place` to `what`. Keeps `owner` alive until no processor can be reading `what`.
    cdef int publish(self, str field, void **place, void *what, object owner) except -1
    cdef int publish_table(self, PartitionTable *table, object owner) except -1
