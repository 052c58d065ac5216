"""Answers ApiVersions without Python. versions.pxd has the contract."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kafkacore._fast.base.api_keys cimport API_VERSIONS
from kafkacore._fast.base.error_codes cimport UNSUPPORTED_VERSION
from kafkacore._fast.plane.answer cimport answer_add_memory
from kafkacore._fast.base.atomics cimport load_ptr
from kafkacore._fast.base.cursor cimport Reader, put16, put32, read_uvarint, reader_init, take
from kafkacore._fast.plane.plane cimport ApiVersionRange, Request, VersionAnswers


cdef bint answer_versions(Request *request) noexcept nogil:
    cdef VersionAnswers *answers = <VersionAnswers *> load_ptr(<void **> &request.plane.versions)
    cdef ApiVersionRange *range_of = &request.plane.apis[API_VERSIONS]
    cdef int16_t version = request.api_version
    cdef const uint8_t *body
    cdef uint8_t refusal[12]
    cdef int32_t size
    cdef uint8_t *memory
    if version < range_of.lowest or version > range_of.highest:
        put16(refusal, UNSUPPORTED_VERSION)
        put32(refusal + 2, 1)
        put16(refusal + 6, API_VERSIONS)
        put16(refusal + 8, <uint32_t> range_of.lowest)
        put16(refusal + 10, <uint32_t> range_of.highest)
        body = refusal
        size = sizeof(refusal)
    elif answers == NULL or version >= answers.count or (version >= 3 and not software_is_plain(request)):
        return False
    else:
        body = answers.bodies[version]
        size = answers.sizes[version]
    memory = <uint8_t *> malloc(size + 8)
    if memory == NULL:
        return False
    put32(memory, <uint32_t> size + 4)
    put32(memory + 4, <uint32_t> request.correlation_id)
    memcpy(memory + 8, body, size)
    request.answer.memory = memory
    answer_add_memory(&request.answer, memory, size + 8)  # the first extent always fits
    return True


cdef bint software_is_plain(Request *request) noexcept nogil:
    """Returns whether ApiVersions 3 allows this client software name and version. The handler rejects all others."""
    cdef Reader reader
    reader_init(&reader, request.frame.data + request.header_size, <size_t> (request.frame.size - request.header_size))
    return plain_word(&reader) and plain_word(&reader)


cdef bint plain_word(Reader *reader) noexcept nogil:
    cdef int64_t size = <int64_t> read_uvarint(reader) - 1
    cdef const uint8_t *text = take(reader, size)
    cdef int64_t i
    if text == NULL or size < 1 or not is_alphanumeric(text[0]) or not is_alphanumeric(text[size - 1]):
        return False
    for i in range(1, size - 1):
        if not is_alphanumeric(text[i]) and text[i] != c"-" and text[i] != c".":
            return False
    return True


cdef inline bint is_alphanumeric(uint8_t byte) noexcept nogil:
    return c"0" <= byte <= c"9" or c"a" <= byte <= c"z" or c"A" <= byte <= c"Z"
