"""The gate: an immutable native policy that judges each hot request (a request that native code serves) before the
processor serves it.

A plane (the limits and state that a group of listeners shares, see plane.pxd) publishes its gate in the same way as its
partition table. The verdict is one of: serve the request, answer with an error, close the connection, or punt the
request (pass it to the plane's handler loop in Python). A rule can also delay the request, or mute the connection after
the answer. A processor is a native thread that serves connections. The handler loop and the processors use the same
native append and read, and must give the same answers. To compare the answers, tests also send the requests through a
gate that always punts.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    GATE_SERVE = 0
    GATE_PUNT = 1
    GATE_ERROR = 2        # answer with the error `error` for every partition of the request
    GATE_CLOSE = 3        # close the connection

ctypedef struct GateRule:
    int16_t api_key       # -1 for any hot API
    int16_t action
    int16_t error
    int32_t mute_ms       # for this long after the answer, the processor does not read the connection
    int64_t delay_ms      # the delay before the gate judges the request again
    int64_t times         # atomic: the number of times that the rule still applies; -1 for always
    char *client_id       # NULL for any client, else exactly this id, which has `client_id_size` bytes
    int32_t client_id_size

ctypedef struct Gate:
    int32_t refs          # atomic
    int16_t otherwise     # the verdict if no rule matches: GATE_SERVE or GATE_PUNT
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
