"""Writes and reads the keys and values of committed offsets. offset_records.pxd has the contract."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.cursor cimport (
    Reader, put16, put32, put64, put_uvarlong, read_i8, read_i16, read_i32, read_i64, read_uvarint, reader_init, take,
)
from kafkacore._fast.schema.schema cimport MAX_STRING, Slice

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef enum:
    OFFSET_COMMIT_KEY = 1
    VERSION_WITH_EXPIRY = 1   # the only version with an expire timestamp
    VERSION_WITH_LEADER_EPOCH = 3
    VERSION = 4

cdef uint8_t[16] NO_ID
NO_ID[:] = [0] * 16
NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


cdef inline uint8_t *put_text(uint8_t *p, const Slice *text) noexcept nogil:
    put16(p, text.size)
    if text.size > 0:
        memcpy(p + 2, text.data, <size_t> text.size)
    return p + 2 + text.size


cdef uint8_t *put_offset_key(uint8_t *p, const Slice *group, const Slice *topic, int32_t partition) noexcept nogil:
    put16(p, OFFSET_COMMIT_KEY)
    p = put_text(put_text(p + 2, group), topic)
    put32(p, partition)
    return p + 4


cdef uint8_t *put_offset_value(uint8_t *p, const OffsetFields *fields) noexcept nogil:
    cdef int32_t size = fields.metadata.size if fields.metadata.size > 0 else 0
    cdef bint expires = fields.expire_timestamp != -1
    put16(p, VERSION_WITH_EXPIRY if expires else VERSION)
    put64(p + 2, fields.offset)
    if expires:
        put16(p + 10, size)
        p += 12
    else:
        put32(p + 10, fields.leader_epoch)
        p = put_uvarlong(p + 14, size + 1)
    if size:
        memcpy(p, fields.metadata.data, size)
    p += size
    put64(p, fields.commit_timestamp)
    if expires:
        put64(p + 8, fields.expire_timestamp)
        return p + 16
    if memcmp(fields.topic_id, NO_ID, TOPIC_ID_BYTES) == 0:
        p[8] = 0  # no tagged fields
        return p + 9
    p[8] = 1
    p[9] = 0  # tag 0
    p[10] = TOPIC_ID_BYTES
    memcpy(p + 11, fields.topic_id, TOPIC_ID_BYTES)
    return p + 11 + TOPIC_ID_BYTES


cdef int copy_topic_id(uint8_t *into, topic_id) except -1:
    if not isinstance(topic_id, bytes) or len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id has {TOPIC_ID_BYTES} bytes, unlike {topic_id!r}")
    memcpy(into, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
    return 0


def read_offset(bytes value not None):
    cdef Reader r
    cdef int version
    cdef int64_t offset, timestamp
    cdef int64_t expires = -1
    cdef int32_t leader_epoch = -1
    cdef int64_t length, tags
    cdef const uint8_t *text
    cdef const uint8_t *topic_id = NULL
    reader_init(&r, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    version = read_i16(&r)
    if version < 0 or version > VERSION:
        return None
    offset = read_i64(&r)
    if version >= VERSION_WITH_LEADER_EPOCH:
        leader_epoch = read_i32(&r)
    length = read_i16(&r) if version < VERSION else <int64_t> read_uvarint(&r) - 1
    text = take(&r, length)
    timestamp = read_i64(&r)
    if version == VERSION_WITH_EXPIRY:
        expires = read_i64(&r)
    if version == VERSION:
        tags = read_i8(&r)
        if tags == 1 and read_i8(&r) == 0 and read_i8(&r) == TOPIC_ID_BYTES:
            topic_id = take(&r, TOPIC_ID_BYTES)
        elif tags != 0:
            return None
    if r.bad or r.pos != r.end or text == NULL or length > MAX_STRING:
        return None
    try:
        metadata = PyUnicode_DecodeUTF8(<const char *> text, length, NULL)
    except UnicodeDecodeError:
        return None
    id_bytes = PyBytes_FromStringAndSize(<const char *> topic_id, TOPIC_ID_BYTES) if topic_id != NULL else NO_TOPIC_ID
    return offset, leader_epoch, metadata, timestamp, expires, id_bytes
