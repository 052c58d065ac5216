"""What the hot APIs of a node share: its state beyond the plane, and how an answer is begun and finished."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.plane.answer cimport Answer
from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.hot.fetch_session cimport FetchSessionCache, FetchSessions
from kafkacore._fast.plane.plane cimport Request
from kafkacore._fast.schema.schema cimport Array, Slice
from kafkacore._fast.wait.timer cimport Timer
from kafkacore._fast.schema.view cimport Arena

cdef enum ErrorCode:
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    INVALID_REQUIRED_ACKS = 21
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_TOPIC_ID = 100

cdef enum:
    MAX_ANSWER_BYTES = 0x7FFFFFF0        # of its memory; file ranges are bounded by fetch.max.bytes

# Where a broker answers the clients of one of the plane's listeners (KIP-951).
ctypedef struct Endpoint:
    int32_t listener
    int32_t node_id
    int32_t port
    const uint8_t *host
    int32_t host_size
    const uint8_t *rack                  # NULL: none
    int32_t rack_size

ctypedef struct Endpoints:
    int32_t count
    Endpoint items[1]                    # `count` of them

ctypedef struct HotState:                # plane.hot_state; outlives the plane
    int32_t fetch_max_bytes              # fetch.max.bytes: an answer's most, but for its first batch
    FetchSessions *sessions
    Endpoints *endpoints                 # atomic pointer to an immutable table; NULL until the node publishes one

# Size prefix and response header; `flexible` where the API's response is (header version 1).
cdef void answer_begin(Writer *out, const Request *request, bint flexible) noexcept nogil
# Hands the bytes to request.answer, as one extent. False when memory is out: close the connection.
cdef bint answer_whole(Writer *out, Request *request) noexcept nogil

# Moves a text out of the frame into the arena. False when the arena is full.
cdef bint copy_slice(Arena *arena, Slice *text) noexcept nogil

# What a Parked's timer fires: the wake-up goes by mail like every other.
cdef void deadline_passed(Timer *timer) noexcept nogil
# KIP-951: the endpoints of the leaders that an answer names, each once, `most` of them, as they are for the listener
# that the request came by; none where memory is out.
cdef void endpoints_begin(Array *endpoints, Arena *arena, int32_t most) noexcept nogil
cdef void endpoints_add(Array *endpoints, const HotState *state, int32_t listener, int32_t node_id) noexcept nogil


cdef class Hot:
    """The hot state of one node. `serve_*` functions are put into a plane by `network`."""
    cdef HotState state
    cdef FetchSessionCache sessions
