"""The probe, a hot API for tests and benchmarks. Each request says how the processor serves it. So tests and benchmarks
can use a plane without a log.

The first byte of the body decides what the processor does. S: serve. P: park for the milliseconds in the next four
bytes. B: block for that time and then serve. U: punt. C: close the connection. N: send no answer. An answer repeats the
body and contains a counter of effects.
"""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

cdef int serve_probe(void *state, Request *request, const Verdict *verdict) noexcept nogil
