"""How a hot API begins and finishes its answer, and the error codes that hot APIs use."""

from libc.stdint cimport int32_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.plane.plane cimport Request
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.schema.view cimport Arena

cdef enum ErrorCode:
    NONE = 0

cdef enum:
    # The most bytes of an answer in memory; fetch.max.bytes limits its ranges of files.
    MAX_ANSWER_BYTES = 0x7FFFFFF0

# Writes room for the size prefix, and the response header; `flexible`: response header version 1.
cdef void answer_begin(Writer *out, const Request *request, bint flexible) noexcept nogil
# Adds the written bytes to request.answer as one extent. False when memory runs out: the caller closes the connection.
cdef bint answer_whole(Writer *out, Request *request) noexcept nogil
# Copies a text from the frame into the arena, so that the frame can be released. False when the arena is full.
cdef bint copy_slice(Arena *arena, Slice *text) noexcept nogil
