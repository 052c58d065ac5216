"""Converts record batches to Arrow columns. record_columns.pyi has the contract."""

from collections import deque

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.base.cursor cimport be16, reader_init, remaining, writer_free, writer_init
from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.codec.context cimport CODEC_NO_MEMORY, CODEC_NONE, CODEC_OK, CODEC_TOO_LARGE, inflate_all
from kafkacore._fast.columns.aborted cimport aborted_free, aborted_init, aborted_set, end_aborted, is_aborted
from kafkacore._fast.columns.arrow cimport shared_release
from kafkacore._fast.columns.rows cimport (
    Row, constant_columns, finished_rows, row_bytes, rows_add, rows_free, rows_init,
)
from kafkacore._fast.record.message_set cimport OldMessage, next_message
from kafkacore._fast.record.record cimport (
    BATCH_BAD_CODEC, BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK, BATCH_SHORT,
    BATCH_TOO_LARGE, HEADER_BYTES, LOG_APPEND_TIME, MARKER_ABORT, MARKER_KEY_BYTES, BatchHeader, RecordView,
    add64_wrapping, batch_checksum, batch_codec, is_control, is_transactional, last_offset, next_record, open_wrapper,
    parse_header, record_offset, record_timestamp, timestamp_type,
)

from kafkacore._fast.base.errors import CorruptBatchError, InvalidRecordError
from kafkacore._fast.columns import arrow
from kafkacore._fast.columns.rows import ArrowRows
from kafkacore._fast.record.batch import REASONS

__all__ = ["COLUMNS", "ArrowRows", "RecordColumns", "live"]

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

cdef enum:
    MOST_ROWS = 1 << 20
    MOST_TOPIC_BYTES = 1000      # Kafka allows 249
    NO_TIMESTAMP_TYPE = -1       # for magic 0, as in Kafka's TimestampType
    KEPT_BYTES = 16 << 20        # a larger block for inflated bodies is not kept between batches
    NO_BATCH = -1

cdef int64_t live_decoders = 0


def live():
    """See record_columns.pyi."""
    return load64(&live_decoders) + arrow.live()


cdef int wanted_bits(wanted) except -1:
    cdef int bits = 0
    for name in wanted:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
        bits |= 1 << COLUMNS.index(name)
    return bits


cdef class Fed:
    def __cinit__(self):
        aborted_init(&self.aborted)

    def __dealloc__(self):
        aborted_free(&self.aborted)
        if self.held:
            PyBuffer_Release(&self.view)


cdef int scan(Fed fed, int64_t *next_offset) noexcept nogil:
    """Finds the whole batches. Returns BATCH_OK, or the `BatchStatus` of a bad batch. In that case `fed.size` is the
    position of the bad batch."""
    cdef BatchHeader header
    cdef size_t available = fed.size
    cdef int status
    cdef int64_t last
    fed.size = 0
    while True:
        status = parse_header(fed.data + fed.size, available - fed.size, &header)
        if status == BATCH_SHORT or (status == BATCH_OK and <size_t> header.size_bytes > available - fed.size):
            return BATCH_OK
        if status != BATCH_OK:
            return status
        last = last_offset(&header)
        if header.base_offset < 0 or last < header.base_offset or last == INT64_MAX or header.record_count < -1:
            return BATCH_BAD_RECORD
        if last >= next_offset[0]:
            next_offset[0] = last + 1
        fed.size += header.size_bytes


@cython.final
cdef class RecordColumns:
    """See record_columns.pyi."""

    def __cinit__(self, *args, **kwargs):
        rows_init(&self.rows, 0)
        writer_init(&self.inflated, 0)
        self.constants = NULL
        self.left = NO_BATCH
        self.next_offset = -1
        add64(&live_decoders, 1)

    def __init__(
        self, wanted, str topic, int32_t partition, int64_t max_rows=10_000, int64_t max_bytes=16 << 20, *,
        int64_t max_inflated_bytes=1 << 30, bint check_crcs=True
    ):
        cdef bytes name = topic.encode()
        if self.constants != NULL:
            raise TypeError("a decoder can be initialized only once")
        if not 1 <= max_rows <= MOST_ROWS:
            raise ValueError(f"max_rows is {max_rows}, and must be from 1 to {MOST_ROWS}")
        if max_bytes < 1 or max_inflated_bytes < 1:
            raise ValueError("max_bytes and max_inflated_bytes must be at least 1")
        if len(name) > MOST_TOPIC_BYTES:
            raise ValueError(f"a topic's name has {len(name)} bytes, and at most {MOST_TOPIC_BYTES} are allowed")
        self.rows.wanted = wanted_bits(wanted)
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.check_crcs = check_crcs
        self.place = f"{topic}-{partition}"
        self.fed = deque()
        self.codec = Codec(max_bytes=max_inflated_bytes, ratio_floor_bytes=max_inflated_bytes)
        writer_init(&self.inflated, <size_t> max_inflated_bytes)
        self.constants = constant_columns(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), partition, max_rows)
        if self.constants == NULL:
            raise MemoryError

    def __dealloc__(self):
        rows_free(&self.rows)
        writer_free(&self.inflated)
        shared_release(self.constants)
        add64(&live_decoders, -1)

    @property
    def held_bytes(self):
        return self.rows.size_bytes + self.waiting_bytes + <int64_t> self.inflated.capacity

    def feed(self, data, int64_t start=0, int64_t end=INT64_MAX, aborted=None):
        cdef Fed fed = Fed.__new__(Fed)
        cdef int64_t next_offset = start
        cdef int status
        if self.constants == NULL:
            raise TypeError("the decoder is not initialized")
        PyObject_GetBuffer(data, &fed.view, PyBUF_SIMPLE)
        fed.held = True
        fed.data = <const uint8_t *> fed.view.buf
        fed.size = <size_t> fed.view.len
        fed.start = start
        fed.end = end
        aborted_set(&fed.aborted, aborted)
        with nogil:
            status = scan(fed, &next_offset)
        if status != BATCH_OK:
            reason = "its offsets are impossible" if status == BATCH_BAD_RECORD else REASONS[status]
            raise CorruptBatchError(f"{self.place}: the batch at byte {fed.size} of the answer: {reason}")
        if fed.size:
            self.fed.append(fed)
            self.waiting_bytes += fed.size
        self.next_offset = next_offset
        return next_offset

    def take(self, *, bint last=False):
        cdef int status = DECODE_DRY
        cdef Fed fed
        while True:
            if self.current is None:
                if not self.fed:
                    break
                self.current = self.fed.popleft()
            fed = self.current
            with nogil:
                status = self.decode(fed)
            if status == DECODE_FULL:
                break
            self.waiting_bytes -= fed.size
            self.current = None
            if status < 0:
                self.refuse(status)
        if status == DECODE_FULL or (last and self.rows.count):
            return finished_rows(&self.rows, self.constants, self.max_rows)
        return None

    def refuse(self, int status):
        """Drops the remaining fed bytes, and raises the error for a status below zero."""
        self.left = NO_BATCH
        self.fed.clear()
        self.waiting_bytes = 0
        place = f"{self.place}: the batch at offset {self.header.base_offset}"
        if status == BATCH_NO_MEMORY:
            rows_free(&self.rows)
            raise MemoryError(f"{place}: there is no memory for its records")
        if status == BATCH_BAD_RECORD:
            raise InvalidRecordError(f"{place}: a record is malformed, or the number of records is wrong")
        raise CorruptBatchError(f"{place}: {REASONS[status]}")

    cdef int decode(self, Fed fed) noexcept nogil:
        """Decodes batches into rows. Returns DECODE_FULL, DECODE_DRY or a `BatchStatus` below zero."""
        cdef int status
        while True:
            if self.left == NO_BATCH:
                status = self.open_next(fed)
                if status <= 0:
                    return status
            status = self.add_records(fed) if self.header.magic == 2 else self.add_messages(fed)
            if status != BATCH_OK:
                return status

    cdef int open_next(self, Fed fed) noexcept nogil:
        """Opens the next batch that has wanted records. Returns 1, DECODE_DRY, or a `BatchStatus` below zero."""
        cdef const uint8_t *data
        cdef int status
        while fed.at < fed.size:
            data = fed.data + fed.at
            status = parse_header(data, fed.size - fed.at, &self.header)
            if status != BATCH_OK:
                return status  # the caller has changed the bytes since `feed`
            if <size_t> self.header.size_bytes > fed.size - fed.at:
                return BATCH_BAD_LENGTH
            fed.at += self.header.size_bytes
            if last_offset(&self.header) < fed.start:
                continue
            if self.header.magic == 2 and self.header.base_offset >= fed.end:
                fed.at = fed.size
                break
            if self.check_crcs and batch_checksum(data, self.header.size_bytes) != self.header.crc:
                return BATCH_BAD_CRC
            status = self.open_set(data) if self.header.magic < 2 else self.open_batch(fed, data)
            if status != BATCH_OK:
                return status
            if self.left != NO_BATCH:
                return 1
        return DECODE_DRY

    cdef int open_batch(self, Fed fed, const uint8_t *data) noexcept nogil:
        """Opens a batch: sets `body` and `left` if the batch has records to read."""
        cdef int status
        cdef RecordView marker
        cdef int codec = batch_codec(&self.header)
        reader_init(&self.body, data + HEADER_BYTES, self.header.size_bytes - HEADER_BYTES)
        if is_control(&self.header):
            if fed.aborted.known and codec == CODEC_NONE and next_record(&self.body, &marker) == BATCH_OK:
                if marker.key_size >= MARKER_KEY_BYTES and be16(marker.key + 2) == MARKER_ABORT:
                    end_aborted(&fed.aborted, self.header.producer_id, last_offset(&self.header))
            return BATCH_OK
        if fed.aborted.known and is_transactional(&self.header):
            if is_aborted(&fed.aborted, self.header.producer_id, last_offset(&self.header)):
                return BATCH_OK
        if codec != CODEC_NONE:
            status = inflate(self, codec, self.body.pos, remaining(&self.body))
            if status != BATCH_OK:
                return status
        self.left = self.header.record_count
        return BATCH_OK if self.left >= 0 else BATCH_BAD_RECORD

    cdef int open_set(self, const uint8_t *data) noexcept nogil:
        """Opens an entry of magic 0 or 1, which is one message or a compressed set of messages."""
        cdef int status
        self.entries_base = 0
        self.is_set = batch_codec(&self.header) != CODEC_NONE
        self.left = 1
        if not self.is_set:
            reader_init(&self.body, data, self.header.size_bytes)
            return BATCH_OK
        writer_free(&self.inflated)
        status = open_wrapper(
            data, &self.header, self.codec.context, &self.codec.limits, &self.inflated, &self.entries_base
        )
        reader_init(&self.body, self.inflated.data, self.inflated.size)
        if status != BATCH_OK:
            self.left = NO_BATCH
        return status

    cdef int add_records(self, Fed fed) noexcept nogil:
        """Adds the remaining records of the open batch to the rows. Returns BATCH_OK at the end of the batch,
        DECODE_FULL, or another BatchStatus."""
        cdef RecordView record
        cdef Row row
        cdef const uint8_t *before
        cdef int status
        row.timestamp_type = timestamp_type(&self.header)
        while self.left > 0:
            before = self.body.pos
            status = next_record(&self.body, &record)
            if status != BATCH_OK:
                return status
            row.offset = record_offset(&self.header, &record)
            if fed.start <= row.offset < fed.end:
                row.timestamp_ms = record_timestamp(&self.header, &record)
                row.key = record.key
                row.key_size = record.key_size
                row.value = record.value
                row.value_size = record.value_size
                row.headers = record.headers
                row.headers_size = record.headers_size
                row.header_count = record.header_count
                if not fits(self, &row):
                    self.body.pos = before
                    return DECODE_FULL
                status = rows_add(&self.rows, &row)
                if status != BATCH_OK:
                    return status
            self.left -= 1
        if remaining(&self.body):
            return BATCH_BAD_RECORD
        return self.end_batch()

    cdef int add_messages(self, Fed fed) noexcept nogil:
        cdef OldMessage message
        cdef Row row
        cdef const uint8_t *before
        cdef int status
        row.headers = NULL
        row.headers_size = row.header_count = 0
        while remaining(&self.body):
            before = self.body.pos
            status = next_message(&self.body, &message)
            if status == BATCH_SHORT:
                break  # Kafka ignores bytes after the last whole message of a set
            if status != BATCH_OK:
                return status
            if self.check_crcs and not message.valid:
                return BATCH_BAD_CRC
            row.offset = add64_wrapping(self.entries_base, message.offset)
            if not fed.start <= row.offset < fed.end:
                continue
            row.timestamp_type = NO_TIMESTAMP_TYPE if message.magic == 0 else timestamp_type(&self.header)
            row.timestamp_ms = message.timestamp_ms
            if self.is_set and message.magic == 1 and self.header.attributes & LOG_APPEND_TIME:
                row.timestamp_ms = self.header.base_timestamp
            row.key = message.key
            row.key_size = message.key_size
            row.value = message.value
            row.value_size = message.value_size
            if not fits(self, &row):
                self.body.pos = before
                return DECODE_FULL
            status = rows_add(&self.rows, &row)
            if status != BATCH_OK:
                return status
        return self.end_batch()

    cdef int end_batch(self) noexcept nogil:
        self.left = NO_BATCH
        if self.inflated.capacity > KEPT_BYTES:
            writer_free(&self.inflated)
        return BATCH_OK


cdef inline bint fits(RecordColumns columns, const Row *row) noexcept nogil:
    if columns.rows.count == 0:
        return True
    if columns.rows.count >= columns.max_rows:
        return False
    return columns.rows.size_bytes + row_bytes(&columns.rows, row) <= columns.max_bytes


cdef int inflate(RecordColumns columns, int codec, const uint8_t *data, size_t size) noexcept nogil:
    cdef int status
    columns.inflated.size = 0
    columns.inflated.bad = False
    status = inflate_all(columns.codec.context, codec, data, size, &columns.codec.limits, &columns.inflated)
    reader_init(&columns.body, columns.inflated.data, columns.inflated.size)
    if status == CODEC_OK:
        return BATCH_OK
    if status == CODEC_NO_MEMORY:
        return BATCH_NO_MEMORY
    return BATCH_TOO_LARGE if status == CODEC_TOO_LARGE else BATCH_BAD_CODEC
