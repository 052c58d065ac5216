"""Serves Produce without the GIL (KIP-98, KIP-467, topic ids of KIP-516 since version 13, leader hints of KIP-951)."""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

# A `Serve` function (see plane.pxd). `state` is a `NodeState` (state.pxd).
cdef int serve_produce(void *state, Request *request, const Verdict *verdict) noexcept nogil
