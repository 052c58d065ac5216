"""What a listener's connections share: limits, memory, ring, gate, hot APIs, metrics. One native Plane for each listener group
of a node (data, controller, control); `network/` makes it and keeps it until the last connection is gone.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from kafkacore._fast.answer cimport Answer
from kafkacore._fast.cursor cimport Reader
from kafkacore._fast.env cimport Env
from kafkacore._fast.gate cimport Gate, Verdict
from kafkacore._fast.mail cimport Inbox, Mail
from kafkacore._fast.memory cimport Budget, Frame
from kafkacore._fast.ring cimport Ring
from kafkacore._fast.table cimport PartitionTable
from kafkacore._fast.timer cimport Wheel

cdef enum:
    HOT_APIS = 4          # keys 0 to 3: Produce, Fetch, ListOffsets, Metadata; a NULL entry is not hot
    STAGES = 6            # queue, local, remote, throttle, response queue, send

# One request from its cut out of the connection to its answer's last byte. Owned by the processor while hot; by the ring
# and then the handler once punted or cold. Its answer slot is reserved before the request is handed on (KAFKA-702).
ctypedef struct Request:
    Mail answered         # a handler posts this to the processor's inbox
    Plane *plane
    Connection *connection          # counted
    uint64_t slot                   # its turn in the connection's queue of answers
    Frame *frame                    # counted
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    const uint8_t *client_id        # inside the frame; NULL when null
    int32_t client_id_size
    int32_t header_size             # the body starts here
    Answer answer
    bint close_after                # the answer is the connection's last
    bint no_answer                  # acks=0
    int32_t mute_ms
    int64_t received_ns             # metrics: stage boundaries
    int64_t dequeued_ns
    int64_t local_done_ns
    int64_t remote_done_ns
    void *state                     # of the hot API, between park and resume
    void (*drop_state)(Request *request) noexcept nogil  # connection gone: give everything back

cdef enum:
    SERVED = 0            # the answer is complete
    SERVED_PARKED = 1     # its effect is done, the answer comes later: a following Produce may be served
    SERVED_BLOCKED = 2    # no or partial effect so far: nothing else of this connection is served until it comes back
    SERVED_PUNT = 3       # untouched; goes on the ring
    SERVED_CLOSE = 4      # malformed: log one line, close

# A hot API. `verdict` is the gate's. Runs on the connection's processor; may patch the frame's bytes. A parked request
# comes back by `request_answered` on the same processor.
ctypedef int (*Serve)(void *state, Request *request, const Verdict *verdict) noexcept nogil

ctypedef struct StageHistogram:
    int64_t buckets[40]   # atomic; powers of two of microseconds
    int64_t count
    int64_t sum_us

ctypedef struct ApiMetrics:
    int64_t requests      # atomic
    int64_t errors
    int64_t request_bytes
    int64_t response_bytes
    StageHistogram stages[STAGES]
    StageHistogram total

ctypedef struct Plane:
    int32_t refs          # atomic: one for network/, one for each connection
    Env *env              # lives longer
    Ring *ring
    Budget budget
    Gate *gate            # published by mail to each processor; see Processor
    PartitionTable *table # likewise
    Serve hot[HOT_APIS]
    void *hot_state
    int64_t max_request_bytes       # socket.request.max.bytes
    int64_t idle_ms                 # connections.max.idle.ms
    int32_t max_connections
    int32_t max_connections_per_ip
    int32_t connection_count        # atomic
    int32_t answers_depth           # answers that a connection may await
    int64_t answers_bytes
    int32_t turn_frames             # a connection's share of one turn
    int64_t turn_bytes
    int32_t send_buffer_bytes       # socket.send.buffer.bytes; -1: the system's
    int32_t receive_buffer_bytes
    bint draining
    int64_t expired_connections_killed   # atomic counters from here on
    int64_t refused_connections
    int64_t malformed_frames
    int64_t responses_queued
    int64_t muted
    ApiMetrics *apis                # indexed by api key, API_METRICS of them

cdef enum:
    API_METRICS = 96

ctypedef struct Connection  # connection.pxd

cdef void request_answered(Request *request) noexcept nogil  # owner's thread: the answer is complete
cdef void request_unblocked(Request *request) noexcept nogil  # owner's thread: SERVED_BLOCKED became SERVED_PARKED
cdef void request_post_answer(Request *request) noexcept nogil  # any thread: the same by mail
cdef Inbox *request_inbox(Request *request) noexcept nogil  # of its processor, for a Parked
cdef Wheel *request_wheel(Request *request) noexcept nogil  # likewise, for its deadline; owner's thread only
cdef PartitionTable *request_table(Request *request) noexcept nogil  # as its processor has taken it; valid until it returns
