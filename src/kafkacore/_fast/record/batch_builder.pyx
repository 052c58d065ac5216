"""Implements batch_builder.pyi: builds record batches."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.codec.context cimport CODEC_NONE, LEVEL_DEFAULT, CodecContext
from kafkacore._fast.codec.compression cimport Codec, codec_id
from kafkacore._fast.base.cursor cimport Writer, write_raw, write_varint, writer_free, writer_init
from kafkacore._fast.record.record cimport (
    BATCH_BAD_CODEC, BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK, CONTROL, DELETE_HORIZON, HEADER_BYTES,
    LOG_APPEND_TIME, MAX_BATCH_BYTES, TRANSACTIONAL, BatchHeader, builder_append, builder_close, builder_free,
    builder_init,
)
from kafkacore._fast.record.record_source cimport RecordSource

from kafkacore._fast.codec.compression import NAMES, CodecError
from kafkacore._fast.base.errors import CorruptBatchError, InvalidRecordError

CODEC_NAMES = {number: name for name, number in NAMES.items()}
DEFAULT_LIMIT_BYTES = 1048588  # Kafka's default max.message.bytes

cdef enum:
    MAX_HEADERS_BYTES = 0x7FFFFFFF
    MANY = 1000                  # a source with more records than this adds them without the GIL

cdef int64_t live = 0


cdef inline int borrow_bytes(object data, const void **start, int32_t *size, Py_buffer *view) except -1:
    """Sets `start` to the address of the bytes of `data`. Returns 1 if the caller must release `view`."""
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
    """Appends (varint size, name, varint size or -1, value) for each pair. Returns the number of pairs."""
    cdef int count = 0
    for name, value in headers:
        if name is None:
            raise InvalidRecordError("a header must have a name; only its value may be None")
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
        codec: none, gzip, snappy, lz4 or zstd.
        level: as in Kafka's compression.*.level.
        limit_bytes: the limit of the size before compression. `append` returns False for a record that would exceed it.
        log_append_time_ms: sets the timestamp type to log append time, and the timestamp of the batch to this value.
        delete_horizon_ms: the delete horizon (KIP-534).
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
        """Adds a record. Returns False, and adds nothing, if the record does not fit into `limit_bytes`.

        Args:
            timestamp: milliseconds since the epoch, or -1 for none.
            key, value: bytes-like, or None.
            headers: pairs of a name (str or bytes) and a value (bytes-like or None).
            offset_delta: the offset minus the base offset; by default the previous record's offset delta plus 1.

        Raises:
            InvalidRecordError: a timestamp below -1, an offset delta that does not increase, or a header without a
            name.
            ValueError: the batch has been built.
        """
        cdef Py_buffer views[2]
        cdef int held[2]
        cdef int status
        if self.closed:
            raise ValueError("this batch is built; create another RecordBatchBuilder")
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
        """Adds a record for each key and value (`bytes`; a value may be None), or all records of a RecordSource. Unless
        all of these records fit into `limit_bytes`, adds no record and returns False.

        Raises:
            InvalidRecordError: a timestamp below -1.
            TypeError: a key or value that is not bytes.
            ValueError: the batch has been built.
        """
        cdef BatchHeader header = self.builder.header
        cdef int64_t max_timestamp = self.builder.max_timestamp
        cdef size_t size = self.builder.out.size
        cdef RecordSource source
        cdef int status = BATCH_OK
        if self.closed:
            raise ValueError("this batch is built; create another RecordBatchBuilder")
        try:
            if isinstance(pairs, RecordSource):
                source = pairs
                if len(source) > MANY:
                    with nogil:
                        status = source.append_to(&self.builder, timestamp)
                else:
                    status = source.append_to(&self.builder, timestamp)
            else:
                status = self.append_pairs(timestamp, pairs)
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

    cdef int append_pairs(self, int64_t timestamp, pairs) except -100:
        cdef bytes key, value
        cdef int status = BATCH_OK
        for key, value in pairs:
            status = builder_append(
                &self.builder, self.builder.header.last_offset_delta + 1, timestamp,
                NULL if key is None else PyBytes_AS_STRING(key), -1 if key is None else sized(key),
                NULL if value is None else PyBytes_AS_STRING(value), -1 if value is None else sized(value),
                NULL, 0, 0,
            )
            if status != BATCH_OK:
                break
        return status

    def append_rows(self, int64_t timestamp, const uint8_t[::1] data, const int64_t[::1] ends, int64_t first,
                    int64_t last):
        """Adds a record without a key for each row in `[first, last)`. The value of a row is the part of `data` from
        the end of the previous row to the row's own end. Returns False if a record does not fit into `limit_bytes`; the
        records before it have been added.

        Raises:
            InvalidRecordError: a timestamp below -1.
            ValueError: missing rows, or the batch has been built.
        """
        cdef int64_t row, start
        cdef int status = BATCH_OK
        if self.closed:
            raise ValueError("this batch is built; create another RecordBatchBuilder")
        if not 0 <= first <= last <= ends.shape[0]:
            raise ValueError(f"rows {first} to {last} are outside the {ends.shape[0]} rows")
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
        """The size of the batch so far, before compression."""
        return max(self.builder.out.size, <size_t> HEADER_BYTES)

    def build(self):
        """Finishes the batch and returns its bytes.

        Raises:
            CodecError: the codec does not have the level.
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
            if status == BATCH_NO_MEMORY:
                raise MemoryError
            if status != BATCH_OK:
                raise CorruptBatchError("the body is larger than a batch can be")
            self.closed = True
        return PyBytes_FromStringAndSize(<const char *> self.builder.out.data, <Py_ssize_t> self.builder.out.size)


def live_builders():
    """Returns the number of builders that have not been freed."""
    return load64(&live)
