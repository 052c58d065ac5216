"""The walker: reads the bytes of a Shape and passes the values to a sink, or gets values from a sink and writes the
bytes.

The caller begins a walk, then reads or writes until it is done, fails, or has used up its budget of array elements; a
paused walk continues where it was. The frames of a walk are the structs that are open. The sink's targets must outlive
the walk.
"""

from kafkacore._fast.schema.schema cimport Shape, Sink, Walk

# The caller has set reader or writer, budget, room (for reading) and context.
cdef void walk_begin(Walk *walk, const Sink *sink, const Shape *shape, void *target) noexcept nogil
# Returns an Outcome. A failed walk has its fault, and its frames say where it happened.
cdef int walk_read(Walk *walk) noexcept nogil
cdef int walk_write(Walk *walk) noexcept nogil
# Raises the exception for the walk's fault, with the path of the field. Needs the GIL.
cdef int raise_fault(Walk *walk) except -1
cdef str fault_text(int fault)
