"""The walker: reads or writes one message, whose format a `Shape` describes. It passes the values that it reads to a
sink, or gets the values that it writes from a sink (schema.pxd).

The caller begins a walk, and then calls `walk_read` or `walk_write`. The call returns when the walk is done, has
failed, or has used up its budget of array elements. In the last case the walk is paused, and the next call continues
it. A walk has a frame for each struct that it has entered but not completed. The structs or objects to which the sink
writes must outlive the walk.
"""

from kafkacore._fast.schema.schema cimport Shape, Sink, Walk

# Before the call, the caller must set `reader` or `writer`, `budget`, `context`, and for reading also `room`.
cdef void walk_begin(Walk *walk, const Sink *sink, const Shape *shape, void *target) noexcept nogil
# Both functions return an `Outcome`. If the walk failed, `walk.fault` has the reason, and `walk.frames` shows the
# position.
cdef int walk_read(Walk *walk) noexcept nogil
cdef int walk_write(Walk *walk) noexcept nogil
# Raises the exception for the walk's fault. The text of the exception names the path of the field. The caller must hold
# the GIL.
cdef int raise_fault(Walk *walk) except -1
cdef str fault_text(int fault)
