"""Keys and values of committed offsets, a topic's in one call: a commit of hundreds of partitions is written here.

The layouts are OffsetCommitKey's and OffsetCommitValue's (`protocol/tables`, coordinator-key and coordinator-value); a
test holds them against the tables.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkacore._fast.cursor cimport (
    Reader, put16, put32, put64, put_uvarlong, read_i8, read_i16, read_i32, read_i64, read_uvarint, reader_init, take,
)
from kafkacore._fast.slots cimport slot_offset

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept
    bint PyUnicode_IS_ASCII(object text) noexcept
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef enum:
    KEY_TAIL = 4              # the partition
    VERSION_WITH_EXPIRY = 1   # the only one that has an expire timestamp
    VERSION_WITH_LEADER_EPOCH = 3
    VERSION = 4
    MAX_HEAD = 2 + 8 + 4 + 10  # version, offset, leader epoch, and room for the length of the metadata
    MAX_SHORT = 0x7FFF
    UUID_SIZE = 16


NO_TOPIC_ID = bytes(UUID_SIZE)


cdef bint too_long(object text, Py_ssize_t limit) except -1:
    """In what Java calls characters: one outside the first plane counts twice."""
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    if length > limit:
        return True
    if length * 2 <= limit or PyUnicode_IS_ASCII(text):
        return False
    return len((<str> text).encode("utf-16-le")) > limit * 2


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
        if tags == 1 and read_i8(&r) == 0 and read_i8(&r) == UUID_SIZE:
            topic_id = take(&r, UUID_SIZE)
        elif tags != 0:
            return None
    if r.bad or r.pos != r.end or text == NULL or length > MAX_SHORT:
        return None
    try:
        metadata = PyUnicode_DecodeUTF8(<const char *> text, length, NULL)
    except UnicodeDecodeError:
        return None
    id_bytes = PyBytes_FromStringAndSize(<const char *> topic_id, UUID_SIZE) if topic_id != NULL else NO_TOPIC_ID
    return offset, leader_epoch, metadata, timestamp, expires, id_bytes


cdef class OffsetRecordWriter:
    """`partition_class`: an OffsetCommitRequestPartition, whose slots are read where they lie. `metadata_limit` is in
    characters as Java counts them."""

    cdef type partition_class
    cdef Py_ssize_t index_at, offset_at, epoch_at, metadata_at, limit

    def __init__(self, type partition_class not None, Py_ssize_t metadata_limit):
        self.partition_class = partition_class
        self.limit = metadata_limit
        self.index_at = slot_offset(partition_class.__dict__["partition_index"])
        self.offset_at = slot_offset(partition_class.__dict__["committed_offset"])
        self.epoch_at = slot_offset(partition_class.__dict__["committed_leader_epoch"])
        self.metadata_at = slot_offset(partition_class.__dict__["committed_metadata"])
        if min(self.index_at, self.offset_at, self.epoch_at, self.metadata_at) < 0:
            raise TypeError(f"{partition_class.__name__} keeps a field of a partition outside of slots")

    def write(
        self, bytes prefix not None, bytes tail not None, bint expiring, list partitions not None, list records not None
    ):
        cdef list indexes = []
        cdef list values = []
        cdef list refused = None
        cdef object each, index, metadata, key, value
        for each in partitions:
            if type(each) is not self.partition_class:
                raise TypeError(f"{type(each).__name__} is no {self.partition_class.__name__}")
            index = self.field(each, self.index_at)
            metadata = self.field(each, self.metadata_at)
            if metadata is not None and type(metadata) is not str:
                raise TypeError(f"metadata is a {type(metadata).__name__}, not a text")
            if metadata is not None and too_long(metadata, self.limit):
                refused = refused or []
                refused.append(index)
                continue
            key = key_of(prefix, index)
            value = value_of(
                tail, expiring, self.field(each, self.offset_at), self.field(each, self.epoch_at), metadata
            )
            indexes.append(index)
            values.append(value)
            records.append((key, value))
        return indexes, values, refused

    cdef object field(self, object each, Py_ssize_t at):
        cdef PyObject *held = (<PyObject **> (<char *> <PyObject *> each + at))[0]
        if held == NULL:
            raise AttributeError("a partition of an OffsetCommit has no value for one of its fields")
        return <object> held


cdef object key_of(bytes prefix, int32_t index):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef object key = PyBytes_FromStringAndSize(NULL, size + KEY_TAIL)
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(key)
    memcpy(at, PyBytes_AS_STRING(prefix), size)
    put32(at + size, index)
    return key


cdef object value_of(bytes tail, bint expiring, int64_t offset, int32_t leader_epoch, object metadata):
    cdef Py_ssize_t length = 0
    cdef const char *text = b""
    cdef Py_ssize_t tail_size = PyBytes_GET_SIZE(tail)
    cdef uint8_t head[MAX_HEAD]
    cdef uint8_t *at
    cdef Py_ssize_t head_size
    cdef object value
    if metadata is not None:
        text = PyUnicode_AsUTF8AndSize(metadata, &length)
    if length > MAX_SHORT:
        raise ValueError("metadata of more than 32767 bytes")
    put16(head, VERSION_WITH_EXPIRY if expiring else VERSION)
    put64(head + 2, offset)
    if expiring:
        put16(head + 10, length)
        at = head + 12
    else:
        put32(head + 10, leader_epoch)
        at = put_uvarlong(head + 14, length + 1)
    head_size = at - head
    value = PyBytes_FromStringAndSize(NULL, head_size + length + tail_size)
    at = <uint8_t *> PyBytes_AS_STRING(value)
    memcpy(at, head, head_size)
    memcpy(at + head_size, text, length)
    memcpy(at + head_size + length, PyBytes_AS_STRING(tail), tail_size)
    return value
