"""Implements the gate. It checks its rules in order, and the first rule that matches decides."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.atomics cimport add32, cas64, load64


cdef void gate_release(Gate *gate) noexcept nogil:
    cdef int32_t i
    if gate == NULL or add32(&gate.refs, -1) != 0:
        return
    for i in range(gate.count):
        free(gate.rules[i].client_id)
    free(gate.rules)
    free(gate)


cdef inline bint matches(const GateRule *rule, int16_t api_key, const uint8_t *client_id, int32_t size) noexcept nogil:
    if rule.api_key != -1 and rule.api_key != api_key:
        return False
    if rule.client_id == NULL:
        return True
    return client_id != NULL and size == rule.client_id_size and memcmp(client_id, rule.client_id, size) == 0


cdef inline bint use_once(GateRule *rule) noexcept nogil:
    cdef int64_t times
    while True:
        times = load64(&rule.times)
        if times < 0:
            return True
        if times == 0:
            return False
        if cas64(&rule.times, times, times - 1):
            return True


cdef void gate_judge(Gate *gate, int16_t api_key, const uint8_t *client_id, int32_t client_id_size,
                     Verdict *verdict) noexcept nogil:
    cdef GateRule *rule
    cdef int32_t i
    verdict.error = 0
    verdict.mute_ms = 0
    verdict.delay_ms = 0
    verdict.action = GATE_SERVE
    if gate == NULL:
        return
    verdict.action = gate.otherwise
    for i in range(gate.count):
        rule = &gate.rules[i]
        if matches(rule, api_key, client_id, client_id_size) and use_once(rule):
            verdict.action = rule.action
            verdict.error = rule.error
            verdict.mute_ms = rule.mute_ms
            verdict.delay_ms = rule.delay_ms
            return


cdef class GatePolicy:
    """An immutable gate, which planes can publish.

    `otherwise` is the verdict if no rule matches: "serve" or "punt". A rule is a dict with these keys: action ("serve",
    "punt", "error" or "close"), api_key (-1 for any hot API), client_id (None for any client), error (a Kafka error
    code), mute_ms, delay_ms, times (the number of requests to which the rule applies; -1 for all).
    """

    def __cinit__(self, otherwise: str = "serve", rules=()):
        self.gate = <Gate *> calloc(1, sizeof(Gate))
        if self.gate == NULL:
            raise MemoryError
        self.gate.refs = 1
        self.gate.otherwise = action_of(otherwise)
        rules = list(rules)
        self.gate.rules = <GateRule *> calloc(max(len(rules), 1), sizeof(GateRule))
        if self.gate.rules == NULL:
            raise MemoryError
        for rule in rules:
            self._add(**rule)

    def __dealloc__(self):
        gate_release(self.gate)

    cdef void append_rule(self, GateRule *rule) noexcept:
        self.gate.rules[self.gate.count] = rule[0]
        self.gate.count += 1

    def _add(self, *, action: str, api_key: int = -1, client_id: str | None = None, error: int = 0, mute_ms: int = 0,
             delay_ms: int = 0, times: int = -1):
        cdef GateRule rule
        cdef bytes name
        rule.action = action_of(action)
        rule.api_key = api_key
        rule.error = error
        rule.mute_ms = mute_ms
        rule.delay_ms = delay_ms
        rule.times = times
        rule.client_id = NULL
        rule.client_id_size = 0
        if client_id is not None:
            name = client_id.encode()
            rule.client_id_size = <int32_t> len(name)
            rule.client_id = <char *> malloc(max(len(name), 1))
            if rule.client_id == NULL:
                raise MemoryError
            memcpy(rule.client_id, <const char *> name, len(name))
        self.append_rule(&rule)

    def judge(self, api_key: int, client_id: str | None) -> tuple[str, int, int, int]:
        """Judges one request. Returns its action, error, mute_ms and delay_ms. If the rule that matches has a limit
        `times`, this request counts against it."""
        cdef Verdict verdict
        cdef bytes name = b"" if client_id is None else client_id.encode()
        cdef const uint8_t *raw = NULL
        if client_id is not None:
            raw = <const uint8_t *> <const char *> name
        gate_judge(self.gate, api_key, raw, <int32_t> len(name), &verdict)
        return ACTIONS[verdict.action], verdict.error, verdict.mute_ms, verdict.delay_ms


ACTIONS = ("serve", "punt", "error", "close")


cdef int action_of(name: str) except -1:
    if name not in ACTIONS:
        raise ValueError(f"a gate's action is one of {', '.join(ACTIONS)}, not {name!r}")
    return ACTIONS.index(name)
