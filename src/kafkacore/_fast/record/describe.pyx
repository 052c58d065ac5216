"""Implements describe.pxd: describes batches and records as lines of text. `Description` describes a whole file.

In text style, each line is the line that kafka-dump-log of Apache Kafka 4.3 prints, so that scripts can read it.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkacore._fast.record.batch cimport Record
from kafkacore._fast.base.cursor cimport (
    Reader, Writer, be16, be32, reader_init, reserve, write_raw, writer_free, writer_init,
)
from kafkacore._fast.record.message_set cimport OldMessage, next_message
from kafkacore._fast.record.record cimport (
    BATCH_BAD_RECORD, BATCH_OK, BATCH_SHORT, DELETE_HORIZON, LOG_APPEND_TIME, MARKER_ABORT, MARKER_COMMIT,
    MARKER_KEY_BYTES, MARKER_VALUE_BYTES, NO_SEQUENCE, BatchHeader, RecordView, add64_wrapping, add_sequence,
    batch_checksum, batch_codec, is_control, is_transactional, last_offset, last_sequence, next_record,
    next_record_header, record_offset, record_timestamp,
)
from kafkacore._fast.record.record_scan cimport RecordScan
from kafkacore._fast.record.batch_scan cimport SCAN_BATCH, scan_next
from kafkacore._fast.base.text cimport put_number, put_text

from kafkacore._fast.record.batch import Batches, CorruptBatchError
from kafkacore._fast.record.batch_scan import REASONS

cdef enum:
    CHUNK_BYTES = 1 << 18            # the approximate output of one step
    MAX_CHUNK_BYTES = 0x7FFFFFFF

TEXT = STYLE_TEXT
JSON = STYLE_JSON
RECORDS = DESCRIBE_RECORDS
METADATA = DESCRIBE_METADATA
CONTENTS = DESCRIBE_CONTENTS
DECODED = DESCRIBE_DECODED


# --- fields --------------------------------------------------------------------------------------------------------

cdef inline void put(Writer *out, const char *text, size_t size) noexcept nogil:
    write_raw(out, text, size)


cdef inline void put_name(Writer *out, int style, const char *name, size_t size) noexcept nogil:
    """Writes the separator and the name of a value: ` name: ` or `,"name":`."""
    cdef uint8_t *p = reserve(out, size + (3 if style == STYLE_TEXT else 4))
    if p == NULL:
        return
    if style == STYLE_TEXT:
        p[0] = b" "
        memcpy(p + 1, name, size)
        p[size + 1] = b":"
        p[size + 2] = b" "
    else:
        p[0] = b","
        p[1] = b'"'
        memcpy(p + 2, name, size)
        p[size + 2] = b'"'
        p[size + 3] = b":"


cdef inline void put_field(Writer *out, int style, const char *name, size_t size, int64_t value) noexcept nogil:
    put_name(out, style, name, size)
    put_number(out, value)


cdef inline void put_flag(Writer *out, int style, const char *name, size_t size, bint value) noexcept nogil:
    put_name(out, style, name, size)
    if value:
        put(out, b"true", 4)
    else:
        put(out, b"false", 5)


cdef void put_word(Writer *out, int style, const char *word, size_t size) noexcept nogil:
    """Writes a word that needs no escaping."""
    if style == STYLE_JSON:
        put(out, b'"', 1)
    put(out, word, size)
    if style == STYLE_JSON:
        put(out, b'"', 1)


cdef void put_bytes(Writer *out, int style, const uint8_t *data, int32_t size) noexcept nogil:
    if style == STYLE_TEXT:
        put_text(out, data, size, False)
        return
    put(out, b'"', 1)
    put_text(out, data, size, True)
    put(out, b'"', 1)


cdef inline void end_line(Writer *out, int style) noexcept nogil:
    put(out, b"}\n" if style == STYLE_JSON else b"\n", 2 if style == STYLE_JSON else 1)


# --- a batch -------------------------------------------------------------------------------------------------------

cdef void put_time(
    Writer *out, int style, const BatchHeader *header, const char *name, size_t size, int64_t timestamp
) noexcept nogil:
    """Writes a timestamp. In text, the name of the field is the timestamp type."""
    if style == STYLE_JSON:
        put_name(out, style, b"timestampType", 13)
        put(out, b'"', 1)
    else:
        put(out, b" ", 1)
    if header.magic == 0:
        put(out, b"NoTimestampType", 15)
    elif header.attributes & LOG_APPEND_TIME:
        put(out, b"LogAppendTime", 13)
    else:
        put(out, b"CreateTime", 10)
    if style == STYLE_JSON:
        put(out, b'"', 1)
        put_name(out, style, name, size)
    else:
        put(out, b": ", 2)
    put_number(out, timestamp)


cdef void put_codec(Writer *out, int style, int codec) noexcept nogil:
    put_name(out, style, b"compresscodec", 13)
    if codec == 0:
        put_word(out, style, b"none", 4)
    elif codec == 1:
        put_word(out, style, b"gzip", 4)
    elif codec == 2:
        put_word(out, style, b"snappy", 6)
    elif codec == 3:
        put_word(out, style, b"lz4", 3)
    elif codec == 4:
        put_word(out, style, b"zstd", 4)
    else:
        put_word(out, style, b"unknown", 7)


cdef void put_delete_horizon(Writer *out, int style, const BatchHeader *header) noexcept nogil:
    put_name(out, style, b"deleteHorizonMs", 15)
    if not header.attributes & DELETE_HORIZON:
        if style == STYLE_TEXT:
            put(out, b"OptionalLong.empty", 18)
        else:
            put(out, b"null", 4)
        return
    if style == STYLE_TEXT:
        put(out, b"OptionalLong[", 13)
    put_number(out, header.base_timestamp)
    if style == STYLE_TEXT:
        put(out, b"]", 1)


cdef void put_origin(Writer *out, int style, const BatchHeader *header) noexcept nogil:
    """Writes the fields that only magic 2 has, after the base offset."""
    put_field(out, style, b"lastOffset", 10, last_offset(header))
    put_field(out, style, b"count", 5, header.record_count)
    put_field(out, style, b"baseSequence", 12, header.base_sequence)
    put_field(out, style, b"lastSequence", 12, last_sequence(header))
    put_field(out, style, b"producerId", 10, header.producer_id)
    put_field(out, style, b"producerEpoch", 13, header.producer_epoch)
    put_field(out, style, b"partitionLeaderEpoch", 20, header.partition_leader_epoch)
    put_flag(out, style, b"isTransactional", 15, is_transactional(header))
    put_flag(out, style, b"isControl", 9, is_control(header))
    put_delete_horizon(out, style, header)


cdef void describe_batch(
    Writer *out, int style, const BatchHeader *header, int64_t position, bint valid
) noexcept nogil:
    if style == STYLE_JSON:
        put(out, b'{"kind":"batch","baseOffset":' if header.magic >= 2 else b'{"kind":"batch","lastOffset":', 29)
    elif header.magic >= 2:
        put(out, b"baseOffset: ", 12)
    else:
        put(out, b"offset: ", 8)
    put_number(out, header.base_offset)
    if header.magic >= 2:
        put_origin(out, style, header)
    put_field(out, style, b"position", 8, position)
    put_time(out, style, header, b"maxTimestamp", 12, header.max_timestamp)
    put_field(out, style, b"size", 4, header.size_bytes)
    put_field(out, style, b"magic", 5, header.magic)
    put_codec(out, style, batch_codec(header))
    put_field(out, style, b"crc", 3, header.crc)
    put_flag(out, style, b"isvalid", 7, valid)
    end_line(out, style)


# --- a record ------------------------------------------------------------------------------------------------------

cdef void put_header_keys(Writer *out, int style, const RecordView *record) noexcept nogil:
    cdef Reader reader
    cdef RecordView header
    cdef int32_t i
    put_name(out, style, b"headerKeys", 10)
    put(out, b"[", 1)
    reader_init(&reader, record.headers, record.headers_size)
    for i in range(record.header_count):
        if next_record_header(&reader, &header) != BATCH_OK:
            break
        if i:
            put(out, b",", 1)
        put_bytes(out, style, header.key, header.key_size)
    put(out, b"]", 1)


cdef bint is_marker(const RecordView *record) noexcept nogil:
    """Returns whether the record is a marker that ends a transaction."""
    if record.key_size < MARKER_KEY_BYTES or record.value_size < MARKER_VALUE_BYTES:
        return False
    return <int16_t> be16(record.key + 2) in (MARKER_ABORT, MARKER_COMMIT) and <int16_t> be16(record.value) >= 0


cdef void put_marker(Writer *out, int style, const RecordView *record) noexcept nogil:
    put_name(out, style, b"endTxnMarker", 12)
    if be16(record.key + 2) == MARKER_COMMIT:
        put_word(out, style, b"COMMIT", 6)
    else:
        put_word(out, style, b"ABORT", 5)
    put_field(out, style, b"coordinatorEpoch", 16, <int32_t> be32(record.value + 2))


cdef void put_content(Writer *out, int style, const char *name, size_t size, const uint8_t *data,
                      int32_t data_size) noexcept nogil:
    if data_size >= 0:
        put_name(out, style, name, size)
        put_bytes(out, style, data, data_size)


cdef void put_start(Writer *out, int style, int flags, int64_t offset, bint contents) noexcept nogil:
    """Writes the start of a record's line. `contents` says that the line also has a key or a value."""
    if style == STYLE_JSON:
        put(out, b'{"kind":"record","offset":', 26)
        put_number(out, offset)
    elif flags & DESCRIBE_METADATA:
        put(out, b"| offset: ", 10)
        put_number(out, offset)
    elif contents and flags & DESCRIBE_CONTENTS:
        put(out, b"|", 1)


cdef void describe_record(
    Writer *out, int style, int flags, const BatchHeader *header, const RecordView *record
) noexcept nogil:
    cdef bint control = is_control(header)
    cdef bint contents = flags & DESCRIBE_CONTENTS and not control
    put_start(out, style, flags, record_offset(header, record),
              contents and (record.key_size >= 0 or record.value_size >= 0))
    if flags & DESCRIBE_METADATA:
        put_time(out, style, header, b"timestamp", 9, record_timestamp(header, record))
        put_field(out, style, b"keySize", 7, record.key_size)
        put_field(out, style, b"valueSize", 9, record.value_size)
        if header.base_sequence == NO_SEQUENCE:
            put_field(out, style, b"sequence", 8, NO_SEQUENCE)
        else:
            put_field(out, style, b"sequence", 8, add_sequence(header.base_sequence, record.offset_delta))
        put_header_keys(out, style, record)
        if control and is_marker(record):
            put_marker(out, style, record)
    if contents:
        put_content(out, style, b"key", 3, record.key, record.key_size)
        put_content(out, style, b"payload", 7, record.value, record.value_size)


cdef void describe_message(
    Writer *out, int style, int flags, const BatchHeader *header, const OldMessage *message, int64_t offset
) noexcept nogil:
    cdef int64_t timestamp_ms = message.timestamp_ms
    put_start(out, style, flags, offset, message.key_size >= 0 or message.value_size >= 0)
    if flags & DESCRIBE_METADATA:
        if message.magic == 1 and header.attributes & LOG_APPEND_TIME:
            timestamp_ms = header.max_timestamp
        put_time(out, style, header, b"timestamp", 9, timestamp_ms)
        put_field(out, style, b"keySize", 7, message.key_size)
        put_field(out, style, b"valueSize", 9, message.value_size)
        put_flag(out, style, b"isValid", 7, message.valid)
        put_field(out, style, b"crc", 3, message.crc)
    if flags & DESCRIBE_CONTENTS:
        put_content(out, style, b"key", 3, message.key, message.key_size)
        put_content(out, style, b"payload", 7, message.value, message.value_size)


# --- a file --------------------------------------------------------------------------------------------------------

cdef class Description(RecordScan):
    """The lines that describe a file. The iterator returns some lines at a time, as bytes that end with a whole line.

    After each step, `taken` says whether the caller must describe the records of the last batch (see `records`). These
    are records that need a decoder (with `DESCRIBE_DECODED`), and control records other than the end of a transaction.
    """

    def __cinit__(self, *args, **kwargs):
        writer_init(&self.out, MAX_CHUNK_BYTES)
        writer_init(&self.gaps, MAX_CHUNK_BYTES)
        self.last_offset = -1

    def __init__(self, path, int style, int flags, int64_t max_bytes=-1):
        RecordScan.__init__(self, path, max_bytes)
        self.style = style
        self.flags = flags

    def __dealloc__(self):
        writer_free(&self.out)
        writer_free(&self.gaps)

    def __iter__(self):
        return self

    def __next__(self):
        """Returns the next lines. If the scan fails, returns the lines before the error, and then raises
        CorruptBatchError or OSError."""
        cdef int status = SCAN_BATCH
        cdef int fault = self.fault
        if self.scan.file < 0:
            raise ValueError("the scan is closed")
        if fault != BATCH_OK:
            raise CorruptBatchError(f"{self.path}: byte {self.scan.position}: {REASONS[fault]}")
        self.taken = False
        self.out.size = 0
        with nogil:
            while status == SCAN_BATCH and self.out.size < CHUNK_BYTES and not self.taken and self.fault == BATCH_OK:
                status = scan_next(&self.scan, &self.header, &self.at_hand)
                if status == SCAN_BATCH:
                    self.fault = describe(self)
        if self.out.bad or self.gaps.bad:
            raise MemoryError
        if self.out.size == 0:
            if status < 0:
                self.refuse(status)
            raise StopIteration
        return PyBytes_FromStringAndSize(<const char *> self.out.data, self.out.size)

    @property
    def is_taken(self):
        """Whether the caller must describe the records of the last batch."""
        return self.taken

    @property
    def is_control(self):
        """Whether the last batch is a control batch."""
        return is_control(&self.header)

    @property
    def gap_pairs(self):
        """The gaps between the offsets of records, in one bytes object. A gap is a pair of int64: the offsets of the
        records before and after the gap."""
        return PyBytes_FromStringAndSize(<const char *> self.gaps.data, self.gaps.size) if self.gaps.size else b""

    def records(self):
        """Returns each record of the `taken` batch, with the start of its line. Raises CorruptBatchError, CodecError
        and InvalidRecordError.
        """
        cdef Record record
        cdef bytes data = PyBytes_FromStringAndSize(<const char *> self.at_hand, self.header.size_bytes)
        for record in next(Batches(data, self.codec)):
            note_offset(self, record.offset)
            self.out.size = 0
            describe_record(&self.out, self.style, self.flags, &self.header, &record.view)
            if self.out.bad:
                raise MemoryError
            yield record, PyBytes_FromStringAndSize(<const char *> self.out.data, self.out.size)


cdef void note_offset(Description self, int64_t offset) noexcept nogil:
    cdef int64_t pair[2]
    if offset != add64_wrapping(self.last_offset, 1):
        pair[0] = self.last_offset
        pair[1] = offset
        write_raw(&self.gaps, pair, sizeof(pair))
    self.last_offset = offset


cdef int describe(Description self) noexcept nogil:
    """Describes the current batch, and its records if `DESCRIBE_RECORDS` is set. Returns BATCH_OK, or the fault of the
    batch's body."""
    cdef const BatchHeader *header = &self.header
    describe_batch(&self.out, self.style, header, self.scan.position,
                   batch_checksum(self.at_hand, header.size_bytes) == header.crc)
    if not self.flags & DESCRIBE_RECORDS:
        return BATCH_OK
    if self.flags & DESCRIBE_DECODED and not is_control(header):
        self.taken = True
        return BATCH_OK
    return describe_messages(self) if header.magic < 2 else describe_records(self)


cdef int describe_records(Description self) noexcept nogil:
    cdef const BatchHeader *header = &self.header
    cdef Reader body
    cdef RecordView record
    cdef int status = self.open_body(&body)
    cdef int32_t i
    if status != BATCH_OK:
        return status
    for i in range(header.record_count):
        status = next_record(&body, &record)
        if status != BATCH_OK:
            return status
        if i == 0 and self.flags & DESCRIBE_METADATA and is_control(header) and not is_marker(&record):
            self.taken = True
            return BATCH_OK
        note_offset(self, record_offset(header, &record))
        describe_record(&self.out, self.style, self.flags, header, &record)
        end_line(&self.out, self.style)
    return BATCH_OK if body.pos == body.end else BATCH_BAD_RECORD


cdef int describe_messages(Description self) noexcept nogil:
    cdef Reader entries
    cdef OldMessage message
    cdef int64_t base_offset, offset
    cdef int status = self.open_entries(&entries, &base_offset)
    while status == BATCH_OK:
        status = next_message(&entries, &message)
        if status == BATCH_OK:
            offset = add64_wrapping(base_offset, message.offset)
            note_offset(self, offset)
            describe_message(&self.out, self.style, self.flags, &self.header, &message, offset)
            end_line(&self.out, self.style)
    # Like Kafka, leaves out an incomplete last entry.
    return BATCH_OK if status == BATCH_SHORT else status
