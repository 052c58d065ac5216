"""Requests that Python handles. Python takes each request from its plane's ring (the queue of requests for Python, see
plane.pxd) and answers it once.
"""

from kafkacore._fast.plane.plane cimport NativePlane, Request


cdef class InboundRequest:
    """A request from the ring. Python owns the request until it answers."""
    cdef Request *request
    cdef readonly NativePlane plane
    cdef void finish(self) noexcept
    cdef int pending(self) except -1
