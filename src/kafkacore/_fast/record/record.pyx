"""Record batches without the GIL. `batch.pyx` has the Python interface."""

from libc.stdint cimport INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kafkacore._fast.codec.context cimport (
    CODEC_NO_MEMORY, CODEC_NONE, CODEC_OK, CODEC_TOO_LARGE, CodecContext, InflateLimits, deflate_all, inflate_all,
)
from kafkacore._fast.base.crc32c cimport crc32, crc32c
from kafkacore._fast.base.cursor cimport (
    Reader, Writer, be16, be32, be64, put16, put32, put64, reader_init, reserve, writer_free, writer_init, zigzag64,
)
from kafkacore._fast.base.varint cimport get_varint, get_varlong, put_uvarint, uvarint_size

cdef enum:
    LEAST_LENGTH_V0 = 14         # the `batch_length` of an empty magic 0 message
    LEAST_LENGTH_V1 = 22
    LEAST_LENGTH_V2 = HEADER_BYTES - LOG_OVERHEAD
    # A codec adds at most this many bytes to an incompressible body, plus a share of the body's length.
    FRAMING_BYTES = 4096


# --- the header ----------------------------------------------------------------------------------------------------

cdef int parse_header(const void *data, size_t available, BatchHeader *header) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> data
    cdef int32_t length
    cdef int8_t magic
    if available < LOG_OVERHEAD:
        return BATCH_SHORT
    length = <int32_t> be32(p + 8)
    if length < LEAST_LENGTH_V0 or length > MAX_BATCH_BYTES - LOG_OVERHEAD:
        return BATCH_BAD_LENGTH
    if available <= MAGIC_AT:
        return BATCH_SHORT
    magic = <int8_t> p[MAGIC_AT]
    if magic < 0 or magic > 2:
        return BATCH_BAD_MAGIC
    header.base_offset = <int64_t> be64(p)
    header.batch_length = length
    header.size_bytes = length + LOG_OVERHEAD
    header.magic = magic
    if magic < 2:
        return parse_old_header(p, available, header)
    if length < LEAST_LENGTH_V2:
        return BATCH_BAD_LENGTH
    if available < HEADER_BYTES:
        return BATCH_SHORT
    header.partition_leader_epoch = <int32_t> be32(p + 12)
    header.crc = be32(p + CRC_AT)
    header.attributes = <int16_t> be16(p + 21)
    header.last_offset_delta = <int32_t> be32(p + 23)
    header.base_timestamp = <int64_t> be64(p + 27)
    header.max_timestamp = <int64_t> be64(p + 35)
    header.producer_id = <int64_t> be64(p + 43)
    header.producer_epoch = <int16_t> be16(p + 51)
    header.base_sequence = <int32_t> be32(p + 53)
    header.record_count = <int32_t> be32(p + 57)
    return BATCH_OK


cdef int parse_old_header(const uint8_t *p, size_t available, BatchHeader *header) noexcept nogil:
    """Parses the header of an entry of magic 0 and 1: a message, or the wrapper of a compressed set."""
    if header.magic == 1 and header.batch_length < LEAST_LENGTH_V1:
        return BATCH_BAD_LENGTH
    if available < LEAST_ENTRY_BYTES:  # no entry is smaller, and these bytes include the timestamp
        return BATCH_SHORT
    header.crc = be32(p + 12)
    header.attributes = <int8_t> p[17]
    header.base_timestamp = <int64_t> be64(p + 18) if header.magic == 1 else NO_TIMESTAMP
    header.max_timestamp = header.base_timestamp
    header.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
    header.last_offset_delta = 0
    header.producer_id = NO_PRODUCER_ID
    header.producer_epoch = NO_PRODUCER_EPOCH
    header.base_sequence = NO_SEQUENCE
    header.record_count = -1
    return BATCH_OK


cdef uint32_t batch_checksum(const void *data, size_t size) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> data
    if <int8_t> p[MAGIC_AT] >= 2:
        return crc32c(0, p + ATTRIBUTES_AT, size - ATTRIBUTES_AT)
    return crc32(0, p + MAGIC_AT, size - MAGIC_AT)


cdef int check_batch(const void *data, size_t available, BatchHeader *header) noexcept nogil:
    cdef int status = parse_header(data, available, header)
    if status != BATCH_OK:
        return status
    if <size_t> header.size_bytes > available:
        return BATCH_SHORT
    return BATCH_OK if batch_checksum(data, header.size_bytes) == header.crc else BATCH_BAD_CRC


cdef void write_header(void *data, const BatchHeader *header) noexcept nogil:
    cdef uint8_t *p = <uint8_t *> data
    put64(p, header.base_offset)
    put32(p + 8, header.batch_length)
    put32(p + 12, header.partition_leader_epoch)
    p[MAGIC_AT] = 2
    put32(p + CRC_AT, header.crc)
    put16(p + 21, header.attributes)
    put32(p + 23, header.last_offset_delta)
    put64(p + 27, header.base_timestamp)
    put64(p + 35, header.max_timestamp)
    put64(p + 43, header.producer_id)
    put16(p + 51, header.producer_epoch)
    put32(p + 53, header.base_sequence)
    put32(p + 57, header.record_count)


cdef void set_timestamps(void *data, size_t size, int timestamp_type, int64_t max_timestamp) noexcept nogil:
    cdef uint8_t *p = <uint8_t *> data
    cdef int attributes = be16(p + ATTRIBUTES_AT)
    cdef int type_bit = LOG_APPEND_TIME if timestamp_type == TIMESTAMP_LOG_APPEND else 0
    if attributes & LOG_APPEND_TIME == type_bit and <int64_t> be64(p + 35) == max_timestamp:
        return
    put16(p + ATTRIBUTES_AT, attributes & KNOWN_ATTRIBUTES & ~LOG_APPEND_TIME | type_bit)
    put64(p + 35, max_timestamp)
    put32(p + CRC_AT, crc32c(0, p + ATTRIBUTES_AT, size - ATTRIBUTES_AT))


# --- records -------------------------------------------------------------------------------------------------------

cdef inline const uint8_t *get_bytes(
    const uint8_t *p, const uint8_t *end, const uint8_t **data, int32_t *size
) noexcept nogil:
    """Reads a varint size (-1 for null), and that many bytes. Returns the position after them, or NULL."""
    p = get_varint(p, end, size)
    data[0] = NULL
    if p == NULL or size[0] == -1:
        return p
    if size[0] < 0 or size[0] > end - p:
        return NULL
    data[0] = p
    return p + size[0]


cdef const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end, int32_t count) noexcept nogil:
    cdef RecordView header
    if count < 0 or count > (end - p) >> 1:  # the smallest header has two bytes
        return NULL
    while count > 0:
        p = get_bytes(p, end, &header.key, &header.key_size)
        if p == NULL or header.key_size < 0:
            return NULL
        p = get_bytes(p, end, &header.value, &header.value_size)
        if p == NULL:
            return NULL
        count -= 1
    return p


cdef int next_record(Reader *body, RecordView *record) noexcept nogil:
    cdef int32_t length = 0
    cdef const uint8_t *p = get_varint(body.pos, body.end, &length)
    cdef const uint8_t *end
    if p == NULL or length < 1 or length > body.end - p:
        return BATCH_BAD_RECORD
    end = p + length
    record.attributes = <int8_t> p[0]
    p = get_varlong(p + 1, end, &record.timestamp_delta)
    p = get_varint(p, end, &record.offset_delta)
    p = get_bytes(p, end, &record.key, &record.key_size)
    p = get_bytes(p, end, &record.value, &record.value_size)
    p = get_varint(p, end, &record.header_count)
    if p == NULL:
        return BATCH_BAD_RECORD
    record.headers = p
    if record.header_count != 0:
        p = skip_headers(p, end, record.header_count)
    if p != end:
        return BATCH_BAD_RECORD
    record.headers_size = <int32_t> (p - record.headers)
    body.pos = end
    return BATCH_OK


cdef int next_record_header(Reader *headers, RecordView *header) noexcept nogil:
    cdef const uint8_t *p = get_bytes(headers.pos, headers.end, &header.key, &header.key_size)
    p = get_bytes(p, headers.end, &header.value, &header.value_size)
    if p == NULL or header.key_size < 0:
        return BATCH_BAD_RECORD
    headers.pos = p
    return BATCH_OK


# --- look-ups by time ----------------------------------------------------------------------------------------------

cdef int open_body(
    const uint8_t *data, const BatchHeader *header, CodecContext *context, const InflateLimits *limits,
    Writer *inflated, Reader *body
) noexcept nogil:
    """Sets `body` to a reader over the records. Inflates a compressed body into `inflated`, which the caller always
    frees."""
    cdef int status
    reader_init(body, data + HEADER_BYTES, header.size_bytes - HEADER_BYTES)
    writer_init(inflated, <size_t> limits.max_bytes)
    if batch_codec(header) == CODEC_NONE:
        return BATCH_OK
    status = inflate_all(context, batch_codec(header), body.pos, body.end - body.pos, limits, inflated)
    reader_init(body, inflated.data, inflated.size)
    if status == CODEC_OK:
        return BATCH_OK
    if status == CODEC_NO_MEMORY:
        return BATCH_NO_MEMORY
    return BATCH_TOO_LARGE if status == CODEC_TOO_LARGE else BATCH_BAD_CODEC


cdef inline void found_at(FoundRecord *found, int64_t offset, int64_t timestamp) noexcept nogil:
    found.found = True
    found.offset = offset
    found.timestamp = timestamp


cdef int open_wrapper(
    const uint8_t *data, const BatchHeader *header, CodecContext *context, const InflateLimits *limits,
    Writer *inflated, int64_t *base_offset
) noexcept nogil:
    cdef const uint8_t *end = data + header.size_bytes
    cdef const uint8_t *p = data + OLD_KEY_AT - (0 if header.magic == 1 else TIMESTAMP_BYTES)
    cdef int32_t size = <int32_t> be32(p)
    cdef int status
    writer_init(inflated, <size_t> limits.max_bytes)
    if size < -1 or (size > 0 and size > end - p - 8):
        return BATCH_BAD_RECORD
    p += 4 + max(size, 0)
    size = <int32_t> be32(p)
    if size < 0 or size > end - p - 4:
        return BATCH_BAD_RECORD
    status = inflate_all(context, batch_codec(header), p + 4, <size_t> size, limits, inflated)
    if status != CODEC_OK:
        return BATCH_NO_MEMORY if status == CODEC_NO_MEMORY else (
            BATCH_TOO_LARGE if status == CODEC_TOO_LARGE else BATCH_BAD_CODEC)
    return last_of_set(inflated.data, inflated.size, header.base_offset, base_offset)


cdef int last_of_set(const uint8_t *data, size_t size, int64_t wrapper_offset, int64_t *base_offset) noexcept nogil:
    cdef BatchHeader inner
    cdef size_t at = 0
    base_offset[0] = 0
    while at < size:
        if parse_header(data + at, size - at, &inner) != BATCH_OK or inner.magic >= 2 or (
                <size_t> inner.size_bytes > size - at):
            return BATCH_BAD_RECORD
        at += <size_t> inner.size_bytes
        base_offset[0] = add64_wrapping(wrapper_offset, -inner.base_offset)
    return BATCH_OK


cdef int search_old(
    const uint8_t *data, const BatchHeader *header, bint greatest, int64_t timestamp, int64_t start_offset,
    CodecContext *context, const InflateLimits *limits, FoundRecord *found
) noexcept nogil:
    """Searches a message of magic 0 or 1, or the messages that a message of magic 1 wraps. Magic 0 has no timestamp."""
    cdef Writer inflated
    cdef BatchHeader inner
    cdef int64_t base_offset, offset, at_ms
    cdef size_t at = 0
    cdef int status
    if header.magic == 0 or batch_codec(header) == CODEC_NONE:
        if header.base_offset >= start_offset:
            found_at(found, header.base_offset, header.max_timestamp)
        return BATCH_OK
    status = open_wrapper(data, header, context, limits, &inflated, &base_offset)
    while status == BATCH_OK and at < inflated.size:
        # This parse cannot fail, because `open_wrapper` has already parsed the message.
        parse_header(inflated.data + at, inflated.size - at, &inner)
        at += <size_t> inner.size_bytes
        offset = add64_wrapping(base_offset, inner.base_offset)
        at_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else inner.max_timestamp
        if offset < start_offset or at_ms < timestamp or (greatest and found.found and at_ms <= found.timestamp):
            continue
        found_at(found, offset, at_ms)
        if not greatest:
            break
    writer_free(&inflated)
    return status


cdef int search(
    const void *data, size_t size, bint greatest, int64_t timestamp, int64_t start_offset,
    CodecContext *context, const InflateLimits *limits, FoundRecord *found
) noexcept nogil:
    """Finds the first record at or after `timestamp`, or the first record with the greatest timestamp."""
    cdef BatchHeader header
    cdef Reader body
    cdef Writer inflated
    cdef RecordView record
    cdef int64_t at, offset
    cdef int32_t left
    cdef int status = parse_header(data, size, &header)
    found.found = False
    found.offset = found.timestamp = -1
    if status != BATCH_OK:
        return status
    if <size_t> header.size_bytes > size:
        return BATCH_SHORT
    if header.max_timestamp < timestamp and not greatest:
        return BATCH_OK
    if header.magic < 2:
        return search_old(<const uint8_t *> data, &header, greatest, timestamp, start_offset, context, limits, found)
    status = open_body(<const uint8_t *> data, &header, context, limits, &inflated, &body)
    left = header.record_count
    while status == BATCH_OK and left > 0:
        status = next_record(&body, &record)
        if status != BATCH_OK:
            break
        left -= 1
        offset = record_offset(&header, &record)
        at = record_timestamp(&header, &record)
        if offset < start_offset or at < timestamp or (greatest and found.found and at <= found.timestamp):
            continue
        found_at(found, offset, at)
        if not greatest:
            break
    writer_free(&inflated)
    return status


cdef int find_timestamp(
    const void *data, size_t size, int64_t timestamp, int64_t start_offset,
    CodecContext *context, const InflateLimits *limits, FoundRecord *found
) noexcept nogil:
    return search(data, size, False, timestamp, start_offset, context, limits, found)


cdef int find_max_timestamp(
    const void *data, size_t size, CodecContext *context, const InflateLimits *limits, FoundRecord *found
) noexcept nogil:
    return search(data, size, True, INT64_MIN, INT64_MIN, context, limits, found)


# --- building ------------------------------------------------------------------------------------------------------

cdef void builder_init(BatchBuilder *builder, size_t limit_bytes, int64_t base_offset) noexcept nogil:
    cdef BatchHeader *header = &builder.header
    writer_init(&builder.out, min(limit_bytes, <size_t> MAX_BATCH_BYTES))
    builder.max_timestamp = NO_TIMESTAMP
    header.base_offset = base_offset
    header.base_timestamp = NO_TIMESTAMP
    header.max_timestamp = NO_TIMESTAMP
    header.producer_id = NO_PRODUCER_ID
    header.batch_length = header.size_bytes = 0
    header.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
    header.crc = 0
    header.last_offset_delta = -1
    header.base_sequence = NO_SEQUENCE
    header.record_count = 0
    header.attributes = 0
    header.producer_epoch = NO_PRODUCER_EPOCH
    header.magic = 2


cdef void builder_free(BatchBuilder *builder) noexcept nogil:
    writer_free(&builder.out)


cdef inline uint8_t *put_bytes(uint8_t *p, const void *data, int32_t size) noexcept nogil:
    if size < 0:
        p[0] = 1  # -1 in zig-zag encoding
        return p + 1
    p = put_uvarint(p, <uint64_t> size << 1)
    if size:
        memcpy(p, data, size)
    return p + size


cdef inline uint64_t bytes_size(int32_t size) noexcept nogil:
    return 1 if size < 0 else <uint64_t> size + uvarint_size(<uint64_t> size << 1)


cdef int builder_append(
    BatchBuilder *builder, int32_t offset_delta, int64_t timestamp,
    const void *key, int32_t key_size, const void *value, int32_t value_size,
    const void *headers, int32_t headers_size, int32_t header_count
) noexcept nogil:
    cdef BatchHeader *header = &builder.header
    cdef uint64_t timestamp_delta, length
    cdef uint8_t *p
    if (
        timestamp < NO_TIMESTAMP or key_size < -1 or value_size < -1 or headers_size < 0 or header_count < 0
        or (header.record_count and offset_delta <= header.last_offset_delta) or offset_delta < 0
    ):
        return BATCH_BAD_RECORD
    if builder.out.size == 0 and reserve(&builder.out, HEADER_BYTES) == NULL:
        return BATCH_FULL
    if header.record_count == 0 and not header.attributes & DELETE_HORIZON:
        header.base_timestamp = timestamp
    timestamp_delta = zigzag64(add64_wrapping(timestamp, -header.base_timestamp))
    length = (
        1 + uvarint_size(timestamp_delta) + uvarint_size(<uint64_t> offset_delta << 1) + bytes_size(key_size)
        + bytes_size(value_size) + uvarint_size(<uint64_t> header_count << 1) + headers_size
    )
    if length > MAX_BATCH_BYTES:
        return BATCH_FULL
    p = reserve(&builder.out, length + uvarint_size(length << 1))
    if p == NULL:
        builder.out.bad = False  # a smaller record may still fit
        return BATCH_FULL
    p = put_uvarint(p, length << 1)
    p[0] = 0  # the attributes of the record: Kafka defines none
    p = put_uvarint(p + 1, timestamp_delta)
    p = put_uvarint(p, <uint64_t> offset_delta << 1)
    p = put_bytes(p, key, key_size)
    p = put_bytes(p, value, value_size)
    p = put_uvarint(p, <uint64_t> header_count << 1)
    if headers_size:
        memcpy(p, headers, headers_size)
    header.last_offset_delta = offset_delta
    header.record_count += 1
    if timestamp > builder.max_timestamp:
        builder.max_timestamp = timestamp
    return BATCH_OK


cdef int compress_body(BatchBuilder *builder, int codec, int level, CodecContext *context) noexcept nogil:
    cdef Writer packed
    cdef int status
    writer_init(&packed, builder.out.size + builder.out.size // 5 + FRAMING_BYTES)
    if reserve(&packed, HEADER_BYTES) == NULL:
        return BATCH_NO_MEMORY
    status = deflate_all(
        context, codec, level, builder.out.data + HEADER_BYTES, builder.out.size - HEADER_BYTES, &packed
    )
    if status != CODEC_OK:
        writer_free(&packed)
        return BATCH_NO_MEMORY if status == CODEC_NO_MEMORY else BATCH_BAD_CODEC
    if packed.size > MAX_BATCH_BYTES:
        writer_free(&packed)
        return BATCH_TOO_LARGE
    free(builder.out.data)
    builder.out = packed
    return BATCH_OK


cdef int builder_close(BatchBuilder *builder, int codec, int level, CodecContext *context) noexcept nogil:
    cdef BatchHeader *header = &builder.header
    cdef int status
    if builder.out.size == 0 and reserve(&builder.out, HEADER_BYTES) == NULL:
        return BATCH_NO_MEMORY
    if codec != CODEC_NONE:
        status = compress_body(builder, codec, level, context)
        if status != BATCH_OK:
            return status
    if not header.attributes & LOG_APPEND_TIME:
        header.max_timestamp = builder.max_timestamp
    header.attributes = (header.attributes & ~CODEC_MASK) | codec
    header.size_bytes = <int32_t> builder.out.size
    header.batch_length = header.size_bytes - LOG_OVERHEAD
    write_header(builder.out.data, header)
    header.crc = crc32c(0, builder.out.data + ATTRIBUTES_AT, builder.out.size - ATTRIBUTES_AT)
    put32(builder.out.data + CRC_AT, header.crc)
    return BATCH_OK
