"""A hot API for tests and benchmarks: each request says how the processor should serve it. They drive a plane with it,
without a log.

The body's first byte: S serves; P parks for the milliseconds in the next four bytes; B blocks for that time and then
serves; U punts; C closes; N gives no answer. An answer repeats the body and carries a counter of effects.
"""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

cdef int serve_probe(void *state, Request *request, const Verdict *verdict) noexcept nogil
