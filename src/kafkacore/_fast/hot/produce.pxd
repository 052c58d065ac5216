"""Produce without the GIL (KIP-98, KIP-467, KIP-516 ids in version 13, KIP-951 leader hints)."""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

# A Serve (plane.pxd); `state` is a NodeState.
cdef int serve_produce(void *state, Request *request, const Verdict *verdict) noexcept nogil
