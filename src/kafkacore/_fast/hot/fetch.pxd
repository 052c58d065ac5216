"""Fetch without the GIL: sessions (KIP-227), topic ids (KIP-516), isolation, minimum and maximum bytes, waiting,
divergence (KIP-595), leader hints (KIP-951). It punts a follower's Fetch."""

from kafkacore._fast.plane.gate cimport Verdict
from kafkacore._fast.plane.plane cimport Request

# A Serve (plane.pxd); `state` is a NodeState.
cdef int serve_fetch(void *state, Request *request, const Verdict *verdict) noexcept nogil
