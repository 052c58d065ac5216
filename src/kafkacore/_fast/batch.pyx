"""Record batches for Python: build them, walk them, look into them.

    builder = RecordBatchBuilder(codec="lz4")
    builder.append(timestamp_ms, b"key", b"value", [("trace", b"1")])
    data = builder.build()

    for batch in Batches(data):
        for record in batch:
            record.offset, record.timestamp, record.key, record.value, record.headers

A record holds no copy: `key`, `value` and `headers` are made when they are asked for, `key_view` and `value_view` are
memoryviews into the batch.
"""

import array
from enum import IntEnum

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject_GenericGetAttr
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from kafkacore._fast.atomics cimport add64, load64
from kafkacore._fast.codec cimport CODEC_NONE, CODEC_OK, LEVEL_DEFAULT, CodecContext, inflate_all
from kafkacore._fast.compression cimport Codec, codec_id
from kafkacore._fast.cursor cimport (
    Reader, Writer, be16, reader_init, write_raw, write_varint, writer_detach, writer_free, writer_init,
)
from kafkacore._fast.record cimport (
    BATCH_BAD_CODEC, BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC, BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK,
    BATCH_SHORT, BATCH_TOO_LARGE, CONTROL, DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, MAX_BATCH_BYTES,
    TRANSACTIONAL, FoundRecord, RecordView, batch_checksum, batch_codec, builder_append, builder_close,
    builder_free, builder_init, find_max_timestamp, find_timestamp, is_control, is_transactional,
    last_offset, last_sequence, next_record, next_record_header, parse_header, record_offset, record_timestamp,
    timestamp_type,
)

from kafkacore._fast.compression import NAMES, CodecError
from kafkacore._fast.errors import KafkaError

CODEC_NAMES = {number: name for name, number in NAMES.items()}
DEFAULT_LIMIT_BYTES = 1048588  # Kafka's default max.message.bytes

cdef enum:
    MAX_HEADERS_BYTES = 0x7FFFFFFF

cdef int64_t live = 0


RecordRows = tuple  # as append_rows takes them


class ControlRecordType(IntEnum):
    """The `type` of a control record's key (version and type, 16 bits each)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class CorruptBatchError(KafkaError, ValueError):
    """What is there is no batch: a length, magic byte or body that cannot be. Kafka's CORRUPT_MESSAGE."""

    code = 2
    retriable = True


class InvalidRecordError(KafkaError, ValueError):
    """A record that breaks the format. Kafka's INVALID_RECORD."""

    code = 87


REASONS = {
    BATCH_SHORT: "the batch is cut off",
    BATCH_BAD_LENGTH: "the batch has a length that no batch of its magic can have",
    BATCH_BAD_MAGIC: "the magic byte is none of 0, 1, 2",
    BATCH_BAD_CRC: "the checksum is not that of the batch",
    BATCH_BAD_CODEC: "the body does not inflate with the codec that the attributes name",
    BATCH_TOO_LARGE: "the body inflates beyond its limits",
}


cdef int refuse(int status) except -1:
    if status == BATCH_NO_MEMORY:
        raise MemoryError
    raise CorruptBatchError(REASONS[status])


# --- what records point into ---------------------------------------------------------------------------------------

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
    """bytes, or None for a size of -1."""
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *> data, size)


cdef list headers_of(const RecordView *record):
    cdef Reader reader
    cdef RecordView header
    cdef int32_t _left
    found = []
    reader_init(&reader, record.headers, record.headers_size)
    for _left in range(record.header_count):
        if next_record_header(&reader, &header) != BATCH_OK:
            raise InvalidRecordError("a header of the record is cut off")
        name = PyUnicode_DecodeUTF8(<const char *> header.key, header.key_size, "surrogateescape")
        found.append((name, copied(header.value, header.value_size)))
    return found


@cython.freelist(256)
@cython.no_gc  # it refers to nothing but bytes, so that no cycle goes through it
@cython.final
cdef class Record:
    """One record of a batch.

    Attributes:
        offset: its place in the log.
        timestamp: milliseconds; with log append time the batch's.
    """

    def __getattribute__(self, name):
        """What every reader asks for, by the name's address, in half the time of a look-up in the type and a property;
        these serve the rest, and names that are equal but not the same object.
        """
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
        """bytes, or None."""
        return copied(self.view.key, self.view.key_size)

    @property
    def value(self):
        """bytes, or None."""
        return copied(self.view.value, self.view.value_size)

    @property
    def key_view(self):
        """memoryview into the batch, or None."""
        return viewed(self.body, self.view.key, self.view.key_size)

    @property
    def value_view(self):
        """memoryview into the batch, or None."""
        return viewed(self.body, self.view.value, self.view.value_size)

    @property
    def headers(self):
        """list of (str, bytes or None)."""
        return headers_of(&self.view)

    @property
    def attributes(self):
        """The record's own attribute byte, of which none is defined."""
        return self.view.attributes

    @property
    def offset_delta(self):
        return self.view.offset_delta

    @property
    def control_type(self):
        """The ControlRecordType number in the key of a control record, None where the key is none."""
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
            raise InvalidRecordError(f"record {self.header.record_count - self.left} of the batch is not well formed")
        record.body = self.body
        record.offset = record_offset(&self.header, &record.view)
        record.timestamp = record_timestamp(&self.header, &record.view)
        self.left -= 1
        return record


# --- batches -------------------------------------------------------------------------------------------------------

@cython.final
cdef class Batch:
    """One record batch; iterating gives its records (magic 2). Made by Batches."""

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return last_offset(&self.header)

    @property
    def next_offset(self):
        """Where a reader goes on after this batch."""
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
        """Whether the stored checksum is that of the bytes."""
        return batch_checksum(self.start, self.header.size_bytes) == self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def codec_name(self):
        """none, gzip, snappy, lz4 or zstd; None where the attributes name no codec."""
        return CODEC_NAMES.get(batch_codec(&self.header))

    @property
    def timestamp_type(self):
        """0: create time; 1: log append time."""
        return timestamp_type(&self.header)

    @property
    def is_transactional(self):
        return is_transactional(&self.header)

    @property
    def is_control(self):
        return is_control(&self.header)

    @property
    def delete_horizon_ms(self):
        """When tombstones in this batch may go (KIP-534), or None."""
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
        """As the header says; -1 for magic 0 and 1, whose headers do not."""
        return self.header.record_count

    def values(self):
        """`(data, starts, ends)`: where in `data` the value of each record lies; a null one is empty.

        Raises as iterating does: InvalidRecordError, CorruptBatchError.
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
                raise InvalidRecordError(f"record {at} of the batch is not well formed")
            if record.value_size > 0:
                starts[at] = record.value - records.body.data
                ends[at] = starts[at] + record.value_size
        if records.reader.pos != records.reader.end:
            raise InvalidRecordError("bytes follow the batch's last record")
        return memoryview(records.body), first, last

    @property
    def data(self):
        """memoryview of the whole batch."""
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
            raise CorruptBatchError(f"records of magic {self.header.magic} are served as stored, not read")
        if self.header.record_count < 0:
            raise InvalidRecordError(f"the batch says that it has {self.header.record_count} records")
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
        """(offset, timestamp) of the first record at or after both, or None."""
        cdef FoundRecord found
        if self.codec is None:
            self.codec = Codec()
        status = find_timestamp(
            self.start, self.header.size_bytes, timestamp, start_offset, self.codec.context, &self.codec.limits, &found
        )
        return looked_up(status, &found)

    def find_max_timestamp(self):
        """(offset, timestamp) of the first record with the greatest timestamp, None for an empty batch."""
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
        raise InvalidRecordError("a record of the batch is not well formed")
    if status != BATCH_OK:
        refuse(status)
    return (found.offset, found.timestamp) if found.found else None


@cython.final
cdef class Batches:
    """The batches that lie one after the other in `data`, any contiguous buffer, which is kept and not copied.

    A batch that is cut off at the end is left out, as a Fetch may end in one: `position` tells where the whole ones
    end. Iterating raises CorruptBatchError at what is no batch. Checksums are the caller's to ask for (`batch.crc_ok`).
    """

    def __init__(self, data, Codec codec=None):
        self.body = borrow(data)
        self.codec = codec

    @property
    def position(self):
        """Bytes of the batches given so far."""
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


# --- building ------------------------------------------------------------------------------------------------------

cdef inline int borrow_bytes(object data, const void **start, int32_t *size, Py_buffer *view) except -1:
    """Where the bytes of `data` are; 1 when `view` must be released."""
    if data is None:
        start[0] = NULL
        size[0] = -1
        return 0
    if PyBytes_CheckExact(data):
        if PyBytes_GET_SIZE(data) > MAX_BATCH_BYTES:
            raise InvalidRecordError("a key or value has at most 2^31 - 1 bytes")
        start[0] = PyBytes_AS_STRING(data)
        size[0] = <int32_t> PyBytes_GET_SIZE(data)
        return 0
    PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    if view.len > MAX_BATCH_BYTES:
        PyBuffer_Release(view)
        raise InvalidRecordError("a key or value has at most 2^31 - 1 bytes")
    start[0] = view.buf
    size[0] = <int32_t> view.len
    return 1


cdef int encode_headers(object headers, Writer *out) except -1:
    """Appends (varint size, name, varint size or -1, value) for each pair; gives their number."""
    cdef int count = 0
    for name, value in headers:
        if name is None:
            raise InvalidRecordError("a header has a name; only its value may be None")
        encode_sized(name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name, out)
        encode_sized(value, out)
        count += 1
    if out.bad:
        raise MemoryError
    return count


cdef int encode_sized(object data, Writer *out) except -1:
    cdef Py_buffer view
    cdef const void *start
    cdef int32_t size
    cdef int held = borrow_bytes(data, &start, &size, &view)
    write_varint(out, size)
    if size > 0:
        write_raw(out, start, size)
    if held:
        PyBuffer_Release(&view)
    return 0


cdef inline int32_t sized(bytes data) except -1:
    if PyBytes_GET_SIZE(data) > MAX_BATCH_BYTES:
        raise InvalidRecordError("a key or value has at most 2^31 - 1 bytes")
    return <int32_t> PyBytes_GET_SIZE(data)


@cython.final
cdef class RecordBatchBuilder:
    """Builds one record batch (magic 2).

    Args:
        codec: none, gzip, snappy, lz4 or zstd; `level` as in Kafka's compression.*.level.
        limit_bytes: the most bytes before compression; `append` then gives False.
        log_append_time_ms: sets the timestamp type to log append time, with this as the batch's timestamp.
        delete_horizon_ms: see KIP-534.
    """

    def __cinit__(
        self, *, codec="none", level=None, int64_t base_offset=0, int32_t partition_leader_epoch=-1,
        int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1, bint transactional=False,
        bint control=False, log_append_time_ms=None, delete_horizon_ms=None, int64_t limit_bytes=DEFAULT_LIMIT_BYTES
    ):
        builder_init(&self.builder, max(limit_bytes, <int64_t> HEADER_BYTES), base_offset)
        writer_init(&self.headers, MAX_HEADERS_BYTES)
        add64(&live, 1)
        self.codec = codec_id(codec)
        self.level = LEVEL_DEFAULT if level is None else level
        header = &self.builder.header
        header.partition_leader_epoch = partition_leader_epoch
        header.producer_id = producer_id
        header.producer_epoch = producer_epoch
        header.base_sequence = base_sequence
        if transactional:
            header.attributes |= TRANSACTIONAL
        if control:
            header.attributes |= CONTROL
        if log_append_time_ms is not None:
            header.attributes |= LOG_APPEND_TIME
            header.max_timestamp = log_append_time_ms
        if delete_horizon_ms is not None:
            header.attributes |= DELETE_HORIZON
            header.base_timestamp = delete_horizon_ms

    def __dealloc__(self):
        builder_free(&self.builder)
        writer_free(&self.headers)
        add64(&live, -1)

    def append(self, int64_t timestamp, key, value, headers=None, int offset_delta=-1):
        """Adds a record; False, and nothing added, when it does not fit into `limit_bytes`.

        Args:
            timestamp: milliseconds since the epoch, or -1 for none.
            key, value: bytes-like, or None.
            headers: pairs of a name (str or bytes) and a value (bytes-like or None).
            offset_delta: offset less the base offset; one after the last where not given.

        Raises:
            InvalidRecordError: a timestamp below -1, an offset delta that does not grow, a header without name.
            ValueError: the batch is built already.
        """
        cdef Py_buffer views[2]
        cdef int held[2]
        cdef int status
        if self.closed:
            raise ValueError("this batch is built; make another RecordBatchBuilder")
        held[0] = held[1] = 0
        try:
            status = self.add(timestamp, key, value, headers, offset_delta, views, held)
        finally:
            if held[0]:
                PyBuffer_Release(&views[0])
            if held[1]:
                PyBuffer_Release(&views[1])
        if status == BATCH_BAD_RECORD:
            raise InvalidRecordError(
                f"timestamp {timestamp} must be -1 or more, and offset delta {offset_delta} more than "
                f"{self.builder.header.last_offset_delta}"
            )
        return status == BATCH_OK

    def append_all(self, int64_t timestamp, pairs):
        """Adds a record for each key and value, both of `bytes`, a value perhaps None. False, and none of them added,
        when they do not all fit into `limit_bytes`.

        Raises:
            InvalidRecordError: a timestamp below -1.
            TypeError: a key or value that is no bytes.
            ValueError: the batch is built already.
        """
        cdef BatchHeader header = self.builder.header
        cdef int64_t max_timestamp = self.builder.max_timestamp
        cdef size_t size = self.builder.out.size
        cdef bytes key, value
        cdef int status = BATCH_OK
        if self.closed:
            raise ValueError("this batch is built; make another RecordBatchBuilder")
        try:
            for key, value in pairs:
                status = builder_append(
                    &self.builder, self.builder.header.last_offset_delta + 1, timestamp,
                    NULL if key is None else PyBytes_AS_STRING(key), -1 if key is None else sized(key),
                    NULL if value is None else PyBytes_AS_STRING(value), -1 if value is None else sized(value),
                    NULL, 0, 0,
                )
                if status != BATCH_OK:
                    break
        except BaseException:
            status = BATCH_BAD_RECORD
            raise
        finally:
            if status != BATCH_OK:
                self.builder.header = header
                self.builder.max_timestamp = max_timestamp
                self.builder.out.size = size
        if status == BATCH_BAD_RECORD:
            raise InvalidRecordError(f"timestamp {timestamp} must be -1 or more")
        return status == BATCH_OK

    def append_rows(self, int64_t timestamp, const uint8_t[::1] data, const int64_t[::1] ends, int64_t first,
                    int64_t last):
        """Adds a record without key for each row in `[first, last)`, its value the bytes of `data` from where the row
        before it ends to where it ends. False when one does not fit into `limit_bytes`; those before it are added.

        Raises:
            InvalidRecordError: a timestamp below -1.
            ValueError: rows that are not there, or the batch is built already.
        """
        cdef int64_t row, start
        cdef int status = BATCH_OK
        if self.closed:
            raise ValueError("this batch is built; make another RecordBatchBuilder")
        if not 0 <= first <= last <= ends.shape[0]:
            raise ValueError(f"rows {first} to {last} are asked for, there are {ends.shape[0]}")
        for row in range(first, last):
            start = ends[row - 1] if row else 0
            if not 0 <= start <= ends[row] <= data.shape[0] or ends[row] - start > MAX_BATCH_BYTES:
                raise ValueError(f"row {row} is outside the data")
            status = builder_append(
                &self.builder, self.builder.header.last_offset_delta + 1, timestamp, NULL, -1,
                &data[0] + start, <int32_t> (ends[row] - start), NULL, 0, 0,
            )
            if status != BATCH_OK:
                break
        if status == BATCH_BAD_RECORD:
            raise InvalidRecordError(f"timestamp {timestamp} must be -1 or more")
        return status == BATCH_OK

    cdef int add(
        self, int64_t timestamp, key, value, headers, int offset_delta, Py_buffer *views, int *held
    ) except -100:
        cdef const void *key_data
        cdef const void *value_data
        cdef int32_t key_size, value_size
        cdef Writer *encoded = &self.headers
        held[0] = borrow_bytes(key, &key_data, &key_size, &views[0])
        held[1] = borrow_bytes(value, &value_data, &value_size, &views[1])
        if offset_delta == -1:
            offset_delta = self.builder.header.last_offset_delta + 1
        if headers is None:
            return builder_append(
                &self.builder, offset_delta, timestamp, key_data, key_size, value_data, value_size, NULL, 0, 0
            )
        encoded.size = 0
        encoded.bad = False
        count = encode_headers(headers, encoded)
        return builder_append(
            &self.builder, offset_delta, timestamp, key_data, key_size, value_data, value_size,
            encoded.data, <int32_t> encoded.size, count
        )

    @property
    def record_count(self):
        return self.builder.header.record_count

    @property
    def size_bytes(self):
        """Of the batch so far, before compression."""
        return max(self.builder.out.size, <size_t> HEADER_BYTES)

    def build(self):
        """The batch as bytes; nothing can be appended any more.

        Raises:
            CodecError: a level that the codec does not have.
        """
        cdef Codec codec
        cdef CodecContext *context = NULL
        cdef int status = BATCH_OK
        if not self.closed:
            if self.codec != CODEC_NONE:
                codec = Codec()
                context = codec.context
            with nogil:
                status = builder_close(&self.builder, self.codec, self.level, context)
            if status == BATCH_BAD_CODEC:
                raise CodecError(status, f"codec {CODEC_NAMES.get(self.codec)} does not take level {self.level}")
            if status != BATCH_OK:
                refuse(status)
            self.closed = True
        return copied(self.builder.out.data, <int32_t> self.builder.out.size)


def live_objects():
    """Builders and bodies that were made and not yet freed."""
    return load64(&live)
