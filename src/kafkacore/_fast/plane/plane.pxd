"""A plane: the limits, memory budget, ring, gate, hot APIs and metrics that the connections of a listener group share.
The ring is the queue of requests for Python. The gate judges requests before they are served (gate.pxd). A hot API is
an API that native code serves. A processor is a native thread that serves connections. A handler is the Python code
that serves all other requests. A node has one native `Plane` for each group of listeners (data, controller, control).
The package `network` creates a `Plane` and keeps it until its last connection has closed.

A `Request` belongs to its connection's processor, except while the request is on the ring or with a handler. Then the
handler owns it, until the mail with the answer arrives. A mail is a message to a thread (mail.pxd). Published values
(gate, partition table, ApiVersions answers, endpoints) are immutable and are replaced as a whole. A processor uses a
published value only within one turn (one pass of its event loop). The plane frees an old value when each processor has
ended the turn in which it could have read the value. Each processor counts the beginnings and ends of its turns, so its
count is odd during a turn.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t

from kafkacore._fast.plane.answer cimport Answer
from kafkacore._fast.world.environment cimport Env, Environment
from kafkacore._fast.plane.gate cimport Gate, GatePolicy, Verdict
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.memory cimport Budget, Frame
from kafkacore._fast.wait.ring cimport Ring
from kafkacore._fast.plane.samples cimport Sample, SampleRing
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.log.partition_table cimport PartitionTable
from kafkacore._fast.wait.timer cimport Wheel

cdef enum:
    HOT_APIS = 15         # API keys 0 to 14, Produce to SyncGroup; an API whose entry is NULL is not hot
    API_KEYS = 96         # a plane can serve API keys below this number
    STAGES = 6            # queue, local, remote, throttle, response queue, send
    STAGE_BUCKETS = 40
    NOTICES = 256         # at most this many log lines wait for Python; further lines are only counted
    MAX_LISTENERS = 64    # a plane has at most this many listeners
    TURN_NS = 1000000     # after this time with one connection or request, a processor serves the others

ctypedef struct Plane

# One request, from its frame to the last byte of its answer. The connection's queue holds the requests, and each
# request holds its answer, so answers keep the order of the requests (KAFKA-702).
ctypedef struct Request:
    Mail answered         # must be the first field; a handler posts this mail to the processor's inbox
    Plane *plane
    void *connection      # holds a reference
    Request *next         # next in the connection's queue
    Inbox *inbox          # the inbox of the connection's processor
    Wheel *wheel          # the timing wheel of this processor
    void (*settled)(Request *request, bint complete) noexcept nogil  # see `request_answered` and `request_unblocked`
    int32_t listener      # the number of the listener that accepted the connection
    uint8_t address[16]   # the peer's IPv6 address, or its IPv4 address mapped into IPv6
    int32_t port
    int16_t progress      # REQUEST_*; only the thread of the connection's processor uses it
    Frame *frame          # holds a reference; NULL if the frame was released early
    int64_t frame_bytes   # the frame's size
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t *client_id        # inside the frame; NULL for a null id or a released frame
    int32_t client_id_size
    int32_t header_size             # the body starts here
    int64_t inflated_bytes  # inflated bytes of the records, which count against the connection's share of a turn
    int8_t skew                     # the place in a cache line where the next similar request's data should begin
    Answer answer
    bint close_after                # the connection closes after this answer
    bint no_answer                  # acks=0
    int32_t mute_ms
    int64_t received_ns             # this field and the next four: the boundaries of the stages, for metrics
    int64_t dequeued_ns
    int64_t local_done_ns
    int64_t remote_done_ns
    int64_t sending_ns
    Sample *sample                  # owned; NULL unless the request was chosen for the sampled request log
    void *state                     # belongs to the hot API while the request is parked or blocked
    void (*drop_state)(Request *request) noexcept nogil  # frees `state` if the connection is closed

cdef enum:
    REQUEST_WAITING = 0   # cut out of the bytes, but not started
    REQUEST_BLOCKED = 1   # hot; the request has had no effect or only a part of its effect
    REQUEST_PARKED = 2    # hot; the request has had its effect
    REQUEST_OUT = 3       # on the ring or with a handler
    REQUEST_DONE = 4      # its answer is complete

cdef enum:
    DRAIN_ANSWERED = 1    # each connection closes after its answers have been sent
    DRAIN_AT_ONCE = 2

cdef enum:
    SERVED = 0            # the answer is complete
    SERVED_PARKED = 1     # the request has had its effect, and is answered later; the next Produce can be served now
    # The request has had no effect, or only a part of its effect. Later requests of its connection wait.
    SERVED_BLOCKED = 2
    SERVED_PUNT = 3       # nothing was done; the request goes onto the ring
    SERVED_CLOSE = 4      # the request is malformed: log one line and close the connection

# Serves a request of a hot API. `verdict` comes from the gate. A `Serve` function runs on the connection's processor,
# and may modify the bytes of the frame. For a parked request, the API must later call `request_answered` on the same
# processor, but never from within the `Serve` function.
ctypedef int (*Serve)(void *state, Request *request, const Verdict *verdict) noexcept nogil

ctypedef struct StageHistogram:
    int64_t buckets[STAGE_BUCKETS]  # one for each power of two in microseconds
    int64_t count
    int64_t sum_us

# The metrics of one API on one plane and one processor. Only this processor writes the metrics. Any thread may read
# them.
ctypedef struct ApiMetrics:
    int64_t requests
    int64_t request_bytes
    int64_t response_bytes
    StageHistogram stages[STAGES]
    StageHistogram total

# The versions of an API that this plane serves. The plane rejects other versions as Kafka does.
ctypedef struct ApiVersionRange:
    int16_t lowest
    int16_t highest       # if below `lowest`, this plane does not serve the API
    int16_t flexible_from  # from this version on, requests have header version 2

# The ApiVersions answers by version, as bodies without the header. Python makes new answers whenever features change.
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
    int32_t limit         # an override of `max_connections_per_ip`; -1 for none

# max.connection.creation.rate. The acceptor's lock guards this struct.
ctypedef struct ArrivalRate:
    int64_t per_second    # 0 for no limit
    double tokens
    int64_t filled_ns

ctypedef struct Plane:
    int32_t refs          # atomic: one reference for the package `network`, one for each connection
    Env *env              # exists longer than the plane
    Ring *ring
    Budget budget
    Gate *gate            # published
    PartitionTable *table  # published
    VersionAnswers *versions  # published; if NULL, ApiVersions requests go to the handler
    Serve hot[HOT_APIS]
    void *hot_state[HOT_APIS]
    ApiVersionRange apis[API_KEYS]
    int64_t max_request_bytes       # socket.request.max.bytes
    int64_t idle_ms                 # connections.max.idle.ms
    # While other frames wait for memory, a frame must grow by `slow_frame_bytes` within this time. Otherwise the
    # processor closes its connection.
    int64_t slow_frame_ms
    int64_t slow_frame_bytes
    int64_t half_closed_ms          # for this long, a peer that has half-closed its connection still gets answers
    int32_t max_connections         # atomic, because it can change
    int32_t max_connections_per_ip  # atomic, because it can change
    int32_t answers_depth           # the limit for a connection's unanswered requests
    int64_t answers_bytes           # the limit for the bytes of a connection's complete, unsent answers
    int32_t turn_frames             # a connection's share of one turn: frames (TURN_NS limits the time)
    int64_t turn_bytes              # a connection's share of one turn: received bytes and inflated bytes of records
    int32_t send_buffer_bytes       # socket.send.buffer.bytes; -1 for the system's default
    int32_t receive_buffer_bytes
    int32_t sample_every            # atomic, can change: one of this many requests is sampled; 0 for none
    int32_t draining                # atomic: 0 or DRAIN_*
    int32_t connection_count        # atomic
    int32_t requests_out            # atomic: requests on the ring or with a handler
    int64_t expired_connections_killed   # atomic, like the next six fields
    int64_t refused_connections
    int64_t malformed_frames
    int64_t responses_queued
    int64_t notices_dropped
    int64_t samples_dropped
    int32_t notices_waiting
    Inbox notices         # lines for the application log
    Mail *notices_taken   # only the thread of the handler loop uses it
    SampleRing *samples   # atomic: the first ring of a list with one ring for each processor that has sampled a request
    Mutex addresses_lock
    AddressCount *addresses[256]
    ArrivalRate arrivals            # all listeners of the plane together, except exempt listeners
    int32_t listener_connections[MAX_LISTENERS]  # atomic; by the listener's number

ctypedef struct Notice:
    Mail mail             # must be the first field
    Plane *plane
    char text[232]

cdef void plane_hold(Plane *plane) noexcept nogil
cdef void plane_release(Plane *plane) noexcept nogil


# Call this on the thread of the connection's processor, when `request.answer` is complete.
cdef void request_answered(Request *request) noexcept nogil
# Call this on the processor's thread when a `SERVED_BLOCKED` request has had its effect. From then on, the request
# waits as a `SERVED_PARKED` request does.
cdef void request_unblocked(Request *request) noexcept nogil
# Gives the frame's memory back to the plane's budget. Only the current owner of the request may call this: the
# processor or the handler. After the call, nothing may point into the frame.
cdef void request_release_frame(Request *request) noexcept nogil
# Sends a request that was taken from the ring back to its processor, with its answer. Any thread may call this.
cdef void request_post_answer(Request *request) noexcept nogil
cdef Inbox *request_inbox(Request *request) noexcept nogil  # the processor's inbox, for `Parked.inbox`
# The processor's timing wheel, for deadlines. Only the processor's thread may use it.
cdef Wheel *request_wheel(Request *request) noexcept nogil
cdef PartitionTable *request_table(Request *request) noexcept nogil  # valid until `Serve` or `resume` returns


cdef class HotApi:
    """A `Serve` function and its state, for `NativePlane.install`. `keep` owns the state."""
    cdef Serve serve
    cdef void *state
    cdef object keep


cdef object hot_api(Serve serve, void *state, object keep)


cdef enum:
    MAX_PROCESSORS = 64   # at most this many processors serve one plane


cdef class NativePlane:
    """Owns one reference to a `Plane`."""
    cdef Plane *plane
    cdef readonly Environment environment
    cdef readonly object name
    cdef int pid
    cdef dict published   # field name -> the owner of the published value
    cdef list retired     # (owner of a replaced value, turn count of each processor when the value was replaced)
    cdef const int64_t *turns[MAX_PROCESSORS]
    cdef int turn_count
    cdef list processors
    cdef int check(self) except -1
    cdef int configure(self, dict limits) except -1
    cdef int watch_turns(self, const int64_t *turns, object processor) except -1
    # Stores the pointer `what` in `place`. Keeps `owner` alive until no processor can be reading the data at `what`.
    cdef int publish(self, str field, void **place, void *what, object owner) except -1
    cdef int publish_table(self, PartitionTable *table, object owner) except -1
