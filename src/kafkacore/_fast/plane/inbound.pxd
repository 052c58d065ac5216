"""Requests that Python handles: taken from the ring, answered once."""

from kafkacore._fast.plane.plane cimport NativePlane, Request


cdef class InboundRequest:
    """A request from the ring. Python owns it until it answers."""
    cdef Request *request
    cdef readonly NativePlane plane
    cdef void finish(self) noexcept
    cdef int pending(self) except -1
