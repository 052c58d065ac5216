"""The walker: reads and writes the bytes of a Shape, giving values to and asking them of a sink.

A walk is begun, then read or written until it is done, fails, or has used up its budget of array elements; a paused
walk goes on where it was. Frames are the structs that are open; the sink's targets must outlive the walk.
"""

from kafkacore._fast.schema.schema cimport Shape, Sink, Walk

# The caller has set reader or writer, budget, room (for reading) and context.
cdef void walk_begin(Walk *walk, const Sink *sink, const Shape *shape, void *target) noexcept nogil
# An Outcome. A failed walk tells its fault, and its frames where.
cdef int walk_read(Walk *walk) noexcept nogil
cdef int walk_write(Walk *walk) noexcept nogil
# Raises what the walk's fault says, with the path of the field. Under the GIL.
cdef int raise_fault(Walk *walk) except -1
cdef str fault_text(int fault)
