"""The gate: an immutable native policy that judges each hot request before the processor serves it.

The plane publishes it like the partition table. A verdict is: serve, answer this error, close, or punt the request to
the plane's handler loop; a rule may also delay the request, or mute the connection after the answer. The handler loop
gives the same answers through the same native append and read. So tests compare the hot path with a gate that always
punts.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    GATE_SERVE = 0
    GATE_PUNT = 1
    GATE_ERROR = 2        # every partition of the request gets `error`
    GATE_CLOSE = 3        # drop the connection

ctypedef struct GateRule:
    int16_t api_key       # -1: any hot one
    int16_t action
    int16_t error
    int32_t mute_ms       # how long the connection is not read after the answer
    int64_t delay_ms      # how long the request waits before it is judged again
    int64_t times         # atomic: how many more times the rule applies; -1: always
    char *client_id       # NULL: any client; else exactly this id of `client_id_size` bytes
    int32_t client_id_size

ctypedef struct Gate:
    int32_t refs          # atomic
    int16_t otherwise     # GATE_SERVE or GATE_PUNT: the verdict where no rule matches
    int32_t count
    GateRule *rules

ctypedef struct Verdict:
    int16_t action
    int16_t error
    int32_t mute_ms
    int64_t delay_ms

cdef void gate_release(Gate *gate) noexcept nogil
cdef void gate_judge(Gate *gate, int16_t api_key, const uint8_t *client_id, int32_t client_id_size,
                     Verdict *verdict) noexcept nogil


cdef class GatePolicy:
    cdef Gate *gate
    cdef void append_rule(self, GateRule *rule) noexcept
