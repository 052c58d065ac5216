"""The gate: an immutable native policy that a hot request passes before anything happens to it.

Published like the partition table. It says serve, answer this error, answer and mute for a time, or punt to the plane's
handler loop, which answers with the same meaning by the same native append and read. Punt is right for every Produce
and Fetch; a gate that always punts is the reference beside the hot path.
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
    int32_t mute_ms       # the connection is not read for so long after the answer
    int64_t delay_ms      # before the request is looked at
    int64_t times         # atomic: how often it still applies; -1 for ever
    char *client_id       # NULL: any; else exactly this, `client_id_size` bytes
    int32_t client_id_size

ctypedef struct Gate:
    int32_t refs          # atomic
    int16_t otherwise     # GATE_SERVE or GATE_PUNT, where no rule matches
    int32_t count
    GateRule *rules

ctypedef struct Verdict:
    int16_t action
    int16_t error
    int32_t mute_ms
    int64_t delay_ms

cdef void gate_hold(Gate *gate) noexcept nogil
cdef void gate_release(Gate *gate) noexcept nogil
cdef void gate_judge(Gate *gate, int16_t api_key, const uint8_t *client_id, int32_t client_id_size,
                     Verdict *verdict) noexcept nogil


cdef class GatePolicy:
    cdef Gate *gate
    cdef void append_rule(self, GateRule *rule) noexcept
