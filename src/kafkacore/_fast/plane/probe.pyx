"""Implements the probe. probe.pxd has the contract."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kafkacore._fast.plane.answer cimport answer_add_memory
from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.base.cursor cimport be32, put16, put32
from kafkacore._fast.plane.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.wait.park cimport WAKE_READY, Parked, park_init, park_release, park_wake
from kafkacore._fast.plane.plane cimport (
    SERVED, SERVED_BLOCKED, SERVED_CLOSE, SERVED_PARKED, SERVED_PUNT, HotApi, Request, hot_api, request_answered,
    request_inbox, request_unblocked, request_wheel,
)
from kafkacore._fast.wait.timer cimport Timer, wheel_add, wheel_cancel

ctypedef struct Probed:
    Parked parked             # must be the first field
    Request *request          # NULL if its connection is closed
    bint blocked

cdef int64_t effects = 0      # atomic
cdef int64_t live_probed = 0


def live() -> int:
    """Returns the number of parked probes."""
    return load64(&live_probed)


cdef bint answer(Request *request, int16_t error) noexcept nogil:
    """Makes the answer. It has these parts: size, correlation id, error, number of the effect, body."""
    cdef int64_t size = request.frame.size - request.header_size
    cdef uint8_t *memory = <uint8_t *> malloc(size + 14)
    if memory == NULL:
        return False
    put32(memory, <uint32_t> (size + 10))
    put32(memory + 4, <uint32_t> request.correlation_id)
    put16(memory + 8, <uint32_t> error)
    put32(memory + 10, <uint32_t> add64(&effects, 1))
    memcpy(memory + 14, request.frame.data + request.header_size, size)
    request.answer.memory = memory
    return answer_add_memory(&request.answer, memory, size + 14) == 0


cdef int serve_probe(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef const uint8_t *body = request.frame.data + request.header_size
    cdef int64_t size = request.frame.size - request.header_size
    cdef uint8_t what = body[0] if size else c"S"
    if verdict.action == GATE_ERROR:
        return SERVED if answer(request, verdict.error) else SERVED_CLOSE
    if what == c"U":
        return SERVED_PUNT
    if what == c"C":
        return SERVED_CLOSE
    if what == c"N":
        request.no_answer = True
        return SERVED
    if (what == c"P" or what == c"B") and size >= 5:
        return park(request, <int32_t> be32(body + 1), what == c"B")
    return SERVED if answer(request, 0) else SERVED_CLOSE


cdef int park(Request *request, int32_t ms, bint blocked) noexcept nogil:
    cdef Probed *probed = <Probed *> calloc(1, sizeof(Probed))
    if probed == NULL or (not blocked and not answer(request, 0)):
        free(probed)
        return SERVED_CLOSE
    add64(&live_probed, 1)
    park_init(&probed.parked, request_inbox(request))
    probed.parked.resume = resume
    probed.parked.destroy = destroy
    probed.parked.timer.fire = time_is_up
    probed.request = request
    probed.blocked = blocked
    request.state = probed
    request.drop_state = drop
    wheel_add(request_wheel(request), &probed.parked.timer, request_wheel(request).now_ms + ms)
    return SERVED_BLOCKED if blocked else SERVED_PARKED


cdef void time_is_up(Timer *timer) noexcept nogil:
    cdef Parked layout  # used only to compute the offset of the field
    park_wake(<Parked *> (<char *> timer - (<char *> &layout.timer - <char *> &layout)), WAKE_READY)


cdef void resume(Parked *parked, int why) noexcept nogil:
    cdef Probed *probed = <Probed *> parked
    cdef Request *request = probed.request
    if request == NULL:
        return
    if probed.blocked:
        request.close_after = not answer(request, 0)
        request_unblocked(request)
    request.state = NULL
    request.drop_state = NULL
    probed.request = NULL
    park_release(parked)
    request_answered(request)


cdef void drop(Request *request) noexcept nogil:
    cdef Probed *probed = <Probed *> request.state
    wheel_cancel(request_wheel(request), &probed.parked.timer)
    probed.request = NULL
    park_release(&probed.parked)


cdef void destroy(Parked *parked) noexcept nogil:
    free(parked)
    add64(&live_probed, -1)


def api() -> HotApi:
    """Returns the `HotApi` for NativePlane.install."""
    return hot_api(serve_probe, NULL, None)
