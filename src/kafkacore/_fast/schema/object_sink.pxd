"""The object sink: messages as Python objects with slots. A walk with it needs the GIL."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from kafkacore._fast.schema.schema cimport Sink

# A walk's `context` is NULL, or a list that keeps the current objects of a paused walk alive.
cdef const Sink *object_sink() noexcept nogil

cdef class Encoded:
    """An array of structs that is bytes already (columns.pyx makes them): a message takes it where a list would
    stand."""
    cdef readonly str message
    cdef readonly str struct
    cdef readonly int version
    cdef readonly int count
    cdef uint8_t *data      # owned
    cdef size_t size
