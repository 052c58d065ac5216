"""Begins and finishes the answer of a hot API (an API that native code serves, see plane.pxd)."""

from libc.stdint cimport int32_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.plane.plane cimport Request
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.schema.view cimport Arena

cdef enum ErrorCode:
    NONE = 0

cdef enum:
    # The maximum size of the part of an answer that is in memory. fetch.max.bytes limits the part that is sent from
    # files.
    MAX_ANSWER_BYTES = 0x7FFFFFF0

# Reserves room for the size prefix, and writes the response header. With `flexible`, writes header version 1.
cdef void answer_begin(Writer *out, const Request *request, bint flexible) noexcept nogil
# Adds the written bytes to `request.answer` as one extent (answer.pxd). Returns False if no memory is left; the caller
# must then close the connection.
cdef bint answer_whole(Writer *out, Request *request) noexcept nogil
# Copies a text from the frame (the bytes of the request) into the arena, so that the frame can be released. Returns
# False if the arena is full.
cdef bint copy_slice(Arena *arena, Slice *text) noexcept nogil
