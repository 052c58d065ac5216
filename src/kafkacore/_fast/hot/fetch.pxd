"""Serves Fetch without the GIL: fetch sessions (KIP-227), topic ids (KIP-516), isolation levels, minimum and maximum
bytes, waiting, divergence (KIP-595), leader hints (KIP-951)."""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

# A `Serve` function (see plane.pxd). `state` is a `NodeState` (state.pxd).
cdef int serve_fetch(void *state, Request *request, const Verdict *verdict) noexcept nogil
