"""The object sink: keeps the values of a message in Python objects with slots. A walk reads or writes a message, and
passes each value to a sink or gets it from a sink (schema.pxd). The caller of a walk with this sink must hold the GIL.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from kafkacore._fast.schema.schema cimport Sink

# `walk.context` is either NULL or a list, which keeps the current objects of a paused walk alive.
cdef const Sink *object_sink() noexcept nogil

cdef class Encoded:
    """An array of structs that columns.pyx has already encoded. A message accepts an `Encoded` in place of a list."""
    cdef readonly str message
    cdef readonly str struct
    cdef readonly int version
    cdef readonly int count
    cdef uint8_t *data      # owned
    cdef size_t size
