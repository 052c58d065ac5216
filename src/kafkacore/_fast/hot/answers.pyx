"""Writes the beginning and the end of a hot API's answer. answers.pxd has the contract."""

from libc.stdint cimport uint32_t, uint8_t
from libc.string cimport memcpy

from kafkacore._fast.base.cursor cimport put32, write_i32, write_i8, writer_detach, writer_free
from kafkacore._fast.plane.answer cimport answer_add_memory
from kafkacore._fast.schema.view cimport arena_alloc


cdef void answer_begin(Writer *out, const Request *request, bint flexible) noexcept nogil:
    write_i32(out, 0)  # room for the size, which is known at the end
    write_i32(out, request.correlation_id)
    if flexible:
        write_i8(out, 0)  # no tagged fields


cdef bint answer_whole(Writer *out, Request *request) noexcept nogil:
    cdef size_t size = out.size
    cdef uint8_t *data
    if out.bad:
        writer_free(out)
        return False
    put32(out.data, <uint32_t> (size - 4))
    data = writer_detach(out)
    request.answer.memory = data
    return answer_add_memory(&request.answer, data, size) == 0


cdef bint copy_slice(Arena *arena, Slice *text) noexcept nogil:
    cdef uint8_t *copy
    if text.size <= 0:
        return True
    copy = <uint8_t *> arena_alloc(arena, text.size)
    if copy == NULL:
        return False
    memcpy(copy, text.data, text.size)
    text.data = copy
    return True
