"""A hot API whose requests say what becomes of them: how tests and benchmarks drive a plane without a log behind it.

The body's first byte: S serve, P park for as many ms as the next four bytes say, B block for so long and then serve,
U punt, C close, N no answer. An answer repeats the body, and carries a counter that goes up with each effect.
"""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

cdef int serve_probe(void *state, Request *request, const Verdict *verdict) noexcept nogil
