"""The probe, an API for tests and benchmarks that native code serves. Each request says what the processor (the thread
that serves the connection) does with it. So tests and benchmarks can use a plane (plane.pxd) without a log.

The first byte of the body decides what the processor does. S: answer. P: answer after the milliseconds in the next four
bytes, and serve the connection's next request meanwhile. B: the same, but the connection's next request waits. U: pass
the request to Python. C: close the connection. N: send no answer. An answer repeats the body and contains a counter of
effects.
"""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

cdef int serve_probe(void *state, Request *request, const Verdict *verdict) noexcept nogil
