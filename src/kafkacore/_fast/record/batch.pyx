"""Builds record batches for Python, iterates over their records, and shows their headers.

    builder = RecordBatchBuilder(codec="lz4")
    builder.append(timestamp_ms, b"key", b"value", [("trace", b"1")])
    data = builder.build()

    for batch in Batches(data):
        for record in batch:
            record.offset, record.timestamp, record.key, record.value, record.headers

A record holds no copies. `key`, `value` and `headers` are created at each access. `key_view` and `value_view` are
memoryviews into the batch.
"""

import array
from enum import IntEnum

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject_GenericGetAttr
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.codec.context cimport CODEC_NONE, CODEC_OK, CodecContext, inflate_all
from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.base.cursor cimport Reader, Writer, be16, reader_init, writer_detach, writer_free, writer_init
from kafkacore._fast.record.record cimport (
    BATCH_BAD_CODEC, BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC, BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK,
    BATCH_SHORT, BATCH_TOO_LARGE, DELETE_HORIZON, HEADER_BYTES, FoundRecord, RecordView, batch_checksum, batch_codec,
    find_max_timestamp, find_timestamp, is_control, is_transactional, last_offset, last_sequence, next_record,
    next_record_header, parse_header, record_offset, record_timestamp, timestamp_type,
)

from kafkacore._fast.record.batch_builder import CODEC_NAMES, DEFAULT_LIMIT_BYTES, RecordBatchBuilder, live_builders
from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.base.errors import CorruptBatchError, InvalidRecordError

__all__ = [
    "CODEC_NAMES", "DEFAULT_LIMIT_BYTES", "Batch", "Batches", "ControlRecordType", "CorruptBatchError",
    "InvalidRecordError", "Record", "RecordBatchBuilder", "RecordIterator", "RecordRows", "live_objects",
]

cdef int64_t live = 0

RecordRows = tuple  # for RecordBatchBuilder.append_rows


class ControlRecordType(IntEnum):
    """The `type` of a control record's key (version and type, 16 bits each)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


REASONS = {
    BATCH_SHORT: "the batch is cut off",
    BATCH_BAD_LENGTH: "the batch has an impossible length for its magic byte",
    BATCH_BAD_MAGIC: "the magic byte is not 0, 1 or 2",
    BATCH_BAD_CRC: "the checksum does not match the batch",
    BATCH_BAD_CODEC: "the body does not inflate with the codec that the attributes name",
    BATCH_TOO_LARGE: "the body inflates beyond its limits",
}


cdef int refuse(int status) except -1:
    if status == BATCH_NO_MEMORY:
        raise MemoryError
    raise CorruptBatchError(REASONS[status])


# --- the bytes of records ------------------------------------------------------------------------------------------

cdef class Body:
    def __cinit__(self):
        add64(&live, 1)

    def __dealloc__(self):
        if self.borrowed:
            PyBuffer_Release(&self.view)
        free(self.owned)
        add64(&live, -1)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *> self.data, self.size, 1, flags)


cdef Body borrow(data):
    cdef Body body = Body.__new__(Body)
    PyObject_GetBuffer(data, &body.view, PyBUF_SIMPLE)
    body.borrowed = True
    body.data = <const uint8_t *> body.view.buf
    body.size = body.view.len
    return body


cdef viewed(Body body, const uint8_t *data, int32_t size):
    if size < 0:
        return None
    start = data - body.data
    return memoryview(body)[start:start + size]


cdef inline copied(const uint8_t *data, int32_t size):
    """Returns a copy as bytes, or None for a size of -1."""
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *> data, size)


cdef list headers_of(const RecordView *record):
    cdef Reader reader
    cdef RecordView header
    cdef int32_t _left
    found = []
    reader_init(&reader, record.headers, record.headers_size)
    for _left in range(record.header_count):
        if next_record_header(&reader, &header) != BATCH_OK:
            raise InvalidRecordError("a header of the record is incomplete")
        name = PyUnicode_DecodeUTF8(<const char *> header.key, header.key_size, "surrogateescape")
        found.append((name, copied(header.value, header.value_size)))
    return found


@cython.freelist(256)
@cython.no_gc  # a record refers only to bytes, so it cannot be part of a reference cycle
@cython.final
cdef class Record:
    """One record of a batch.

    Attributes:
        offset: its offset in the log.
        timestamp: in milliseconds; with log append time, the timestamp of the batch.
    """

    def __getattribute__(self, name):
        """Returns an attribute. The usual fields are recognised by the address of their name, which takes half the time
        of a property. Properties serve the other fields. They also serve a usual field if its name is an equal string
        at another address."""
        if name is "value":
            return copied(self.view.value, self.view.value_size)
        if name is "key":
            return copied(self.view.key, self.view.key_size)
        if name is "offset":
            return self.offset
        if name is "timestamp":
            return self.timestamp
        if name is "headers":
            return headers_of(&self.view)
        return PyObject_GenericGetAttr(self, name)

    @property
    def key(self):
        """The key as bytes, or None."""
        return copied(self.view.key, self.view.key_size)

    @property
    def value(self):
        """The value as bytes, or None."""
        return copied(self.view.value, self.view.value_size)

    @property
    def key_view(self):
        """The key as a memoryview into the batch, or None."""
        return viewed(self.body, self.view.key, self.view.key_size)

    @property
    def value_view(self):
        """The value as a memoryview into the batch, or None."""
        return viewed(self.body, self.view.value, self.view.value_size)

    @property
    def headers(self):
        """The headers, a list of (str, bytes or None)."""
        return headers_of(&self.view)

    @property
    def attributes(self):
        """The attributes byte of the record. Kafka defines none of its bits."""
        return self.view.attributes

    @property
    def offset_delta(self):
        return self.view.offset_delta

    @property
    def control_type(self):
        """The ControlRecordType number in the key of a control record, or None if the key is malformed."""
        return be16(self.view.key + 2) if self.view.key_size >= 4 else None

    def __repr__(self):
        return f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r})"


@cython.final
cdef class RecordIterator:
    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        if self.left == 0:
            if self.reader.pos != self.reader.end:
                raise InvalidRecordError("bytes follow the batch's last record")
            raise StopIteration
        record = Record.__new__(Record)
        if next_record(&self.reader, &record.view) != BATCH_OK:
            raise InvalidRecordError(f"record {self.header.record_count - self.left} of the batch is malformed")
        record.body = self.body
        record.offset = record_offset(&self.header, &record.view)
        record.timestamp = record_timestamp(&self.header, &record.view)
        self.left -= 1
        return record


# --- batches -------------------------------------------------------------------------------------------------------

@cython.final
cdef class Batch:
    """One record batch, which a `Batches` has created. Iterating over the batch returns its records (magic 2 only)."""

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return last_offset(&self.header)

    @property
    def next_offset(self):
        """The offset at which a reader continues after this batch."""
        return last_offset(&self.header) + 1

    @property
    def size_bytes(self):
        return self.header.size_bytes

    @property
    def partition_leader_epoch(self):
        return self.header.partition_leader_epoch

    @property
    def magic(self):
        return self.header.magic

    @property
    def crc(self):
        return self.header.crc

    @property
    def crc_ok(self):
        """Whether the stored checksum matches the bytes."""
        return batch_checksum(self.start, self.header.size_bytes) == self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def codec_name(self):
        """The name of the codec (none, gzip, snappy, lz4 or zstd), or None if the attributes name an unknown codec."""
        return CODEC_NAMES.get(batch_codec(&self.header))

    @property
    def timestamp_type(self):
        """0 for create time, 1 for log append time."""
        return timestamp_type(&self.header)

    @property
    def is_transactional(self):
        return is_transactional(&self.header)

    @property
    def is_control(self):
        return is_control(&self.header)

    @property
    def delete_horizon_ms(self):
        """The time after which tombstones in this batch may be removed (KIP-534), or None."""
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON else None

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def last_sequence(self):
        return last_sequence(&self.header)

    @property
    def record_count(self):
        """The number of records according to the header. -1 for magic 0 and 1, whose headers have no count."""
        return self.header.record_count

    def values(self):
        """Returns `(data, starts, ends)`. The value of record i is `data[starts[i]:ends[i]]`. A null value is empty.

        Raises the same errors as iteration: InvalidRecordError, CorruptBatchError, CodecError.
        """
        cdef RecordIterator records = iter(self)
        cdef RecordView record
        cdef int64_t[::1] starts, ends
        cdef int64_t at = 0
        cdef int64_t count = records.left
        if not 0 <= count <= <int64_t> records.body.size:
            raise InvalidRecordError(f"{count} records are more than the batch has bytes for")
        first, last = array.array("q", bytes(8 * count)), array.array("q", bytes(8 * count))
        starts, ends = first, last
        for at in range(count):
            if next_record(&records.reader, &record) != BATCH_OK:
                raise InvalidRecordError(f"record {at} of the batch is malformed")
            if record.value_size > 0:
                starts[at] = record.value - records.body.data
                ends[at] = starts[at] + record.value_size
        if records.reader.pos != records.reader.end:
            raise InvalidRecordError("bytes follow the batch's last record")
        return memoryview(records.body), first, last

    @property
    def data(self):
        """A memoryview of the whole batch."""
        return viewed(self.body, self.start, self.header.size_bytes)

    cdef Body inflated(self):
        cdef Writer out
        cdef CodecContext *context
        cdef Body body = Body.__new__(Body)
        cdef int codec = batch_codec(&self.header)
        cdef int status
        if self.codec is None:
            self.codec = Codec()
        context = self.codec.context
        writer_init(&out, <size_t> self.codec.limits.max_bytes)
        with nogil:
            status = inflate_all(
                context, codec, self.start + HEADER_BYTES, self.header.size_bytes - HEADER_BYTES, &self.codec.limits,
                &out,
            )
        if status != CODEC_OK:
            writer_free(&out)
            raise CodecError(status, f"batch at offset {self.header.base_offset}: its body does not inflate "
                                     f"({self.codec_name}, status {status})")
        body.size = out.size
        body.owned = writer_detach(&out)
        body.data = body.owned
        return body

    def __iter__(self):
        cdef RecordIterator records
        if self.header.magic < 2:
            raise CorruptBatchError(f"records of magic {self.header.magic} are served as stored and cannot be read")
        if self.header.record_count < 0:
            raise InvalidRecordError(f"the batch header has a record count of {self.header.record_count}")
        records = RecordIterator.__new__(RecordIterator)
        records.header = self.header
        records.left = self.header.record_count
        if batch_codec(&self.header) == CODEC_NONE:
            records.body = self.body
            reader_init(&records.reader, self.start + HEADER_BYTES, self.header.size_bytes - HEADER_BYTES)
        else:
            records.body = self.inflated()
            reader_init(&records.reader, records.body.data, records.body.size)
        return records

    def find_timestamp(self, int64_t timestamp, int64_t start_offset=0):
        """Returns (offset, timestamp) of the first record that is at or after both `timestamp` and `start_offset`, or
        None."""
        cdef FoundRecord found
        if self.codec is None:
            self.codec = Codec()
        status = find_timestamp(
            self.start, self.header.size_bytes, timestamp, start_offset, self.codec.context, &self.codec.limits, &found
        )
        return looked_up(status, &found)

    def find_max_timestamp(self):
        """Returns (offset, timestamp) of the first record with the greatest timestamp, or None for an empty batch."""
        cdef FoundRecord found
        if self.codec is None:
            self.codec = Codec()
        status = find_max_timestamp(
            self.start, self.header.size_bytes, self.codec.context, &self.codec.limits, &found
        )
        return looked_up(status, &found)

    def __repr__(self):
        return (
            f"Batch(offsets={self.base_offset}..{self.last_offset}, magic={self.magic}, codec={self.codec_name}, "
            f"records={self.record_count}, producer_id={self.producer_id}, size_bytes={self.size_bytes})"
        )


cdef looked_up(int status, FoundRecord *found):
    if status == BATCH_BAD_RECORD:
        raise InvalidRecordError("a record of the batch is malformed")
    if status != BATCH_OK:
        refuse(status)
    return (found.offset, found.timestamp) if found.found else None


@cython.final
cdef class Batches:
    """The consecutive batches in `data`, which can be any contiguous buffer. Keeps a reference to the buffer and copies
    nothing.

    Leaves out an incomplete batch at the end, which a Fetch response may contain. `position` is the end of the whole
    batches. The iteration raises CorruptBatchError at bytes that are not a batch. It does not verify checksums.
    `batch.crc_ok` verifies the checksum of one batch.
    """

    def __init__(self, data, Codec codec=None):
        self.body = borrow(data)
        self.codec = codec

    @property
    def position(self):
        """The total size of the batches returned so far."""
        return self.at

    def __iter__(self):
        return self

    def __next__(self):
        cdef Batch batch = Batch.__new__(Batch)
        cdef const uint8_t *start = self.body.data + self.at
        cdef size_t left = self.body.size - self.at
        cdef int status = parse_header(start, left, &batch.header)
        if status == BATCH_SHORT or (status == BATCH_OK and <size_t> batch.header.size_bytes > left):
            raise StopIteration
        if status != BATCH_OK:
            raise CorruptBatchError(f"at byte {self.at}: {REASONS[status]}")
        batch.body = self.body
        batch.codec = self.codec
        batch.start = start
        self.at += batch.header.size_bytes
        return batch


def live_objects():
    """Returns the number of builders and bodies that have not been freed."""
    return load64(&live) + live_builders()
