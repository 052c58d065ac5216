"""Validates a batch before an append, in one pass that copies no bytes. `validator.pyx` has the Python interface.

The validation reads the body of the batch in chunks. An uncompressed body is one chunk; a compressed body is read in
the chunks that the codec returns. Only a record that spans two chunks is read byte by byte. The validation allocates no
memory.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kafkacore._fast.base.error_codes cimport (
    CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE,
    UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE,
)
from kafkacore._fast.codec.context cimport (
    CODEC_CORRUPT, CODEC_NO_FILE, CODEC_NONE, CODEC_OK, CODEC_TOO_LARGE, CODEC_ZSTD, CodecContext, deflate_all,
    inflate_all, inflate_begin, inflate_next,
)
from kafkacore._fast.base.crc32c cimport crc32c
from kafkacore._fast.base.cursor cimport Reader, Writer, put16, put32, put64, write_raw, writer_free, writer_init
from kafkacore._fast.record.record cimport (
    ATTRIBUTES_AT, BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC, BATCH_OK, BATCH_SHORT, CODEC_MASK, CRC_AT,
    HEADER_BYTES, KNOWN_ATTRIBUTES, LOG_APPEND_TIME, LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP,
    TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND, BatchHeader, RecordView, add64_wrapping, batch_codec,
    check_batch, has_producer_id, is_control, is_transactional, last_offset, next_record, parse_header,
    set_timestamps, timestamp_type,
)
from kafkacore._fast.base.varint cimport get_varint, get_varlong


cdef enum:
    MAX_VARINT_BYTES = 5
    # A codec adds at most this many bytes to an incompressible body, plus a share of the body's length.
    FRAMING_BYTES = 4096


cdef inline int16_t fail(ValidateResult *result, int16_t error, const char *message) noexcept nogil:
    result.error = error
    result.message = message
    result.error_count = 0
    return error


# --- the body as a stream ------------------------------------------------------------------------------------------

ctypedef struct Body:
    Reader at                    # the unread part of the chunk
    CodecContext *context        # NULL if no more chunks follow
    int64_t bytes_before         # the size of the earlier chunks
    const uint8_t *start         # the start of the chunk
    int status                   # CODEC_OK, or why inflating failed


cdef void open_body(
    Body *body, const uint8_t *data, const BatchHeader *header, const ValidateRules *rules, CodecContext *context
) noexcept nogil:
    cdef int codec = batch_codec(header)
    body.start = body.at.pos = data + HEADER_BYTES
    body.at.end = data + header.size_bytes
    body.context = NULL
    body.bytes_before = 0
    body.status = CODEC_OK
    if codec != CODEC_NONE:
        body.status = inflate_begin(context, codec, body.at.pos, body.at.end - body.at.pos, &rules.limits)
        body.at.end = body.at.pos
        body.context = context if body.status == CODEC_OK else NULL


cdef bint refill(Body *body) noexcept nogil:
    """Reads the next chunk. The current chunk must have been read to its end. Returns False at the end of the body, or
    after an error, which sets `status`."""
    cdef const uint8_t *chunk = NULL
    cdef int64_t given
    if body.context == NULL:
        return False
    given = inflate_next(body.context, &chunk)
    if given <= 0:
        body.status = <int> given
        body.context = NULL
        return False
    body.bytes_before += body.at.end - body.start
    body.start = body.at.pos = chunk
    body.at.end = chunk + given
    return True


cdef bint stream_byte(Body *body, int64_t *left, uint8_t *byte) noexcept nogil:
    if left[0] <= 0 or (body.at.pos == body.at.end and not refill(body)):
        return False
    byte[0] = body.at.pos[0]
    body.at.pos += 1
    left[0] -= 1
    return True


cdef bint stream_varint(Body *body, int64_t *left, int32_t *value) noexcept nogil:
    """Reads a varint whose bytes may be in several chunks."""
    cdef uint8_t gathered[MAX_VARINT_BYTES]
    cdef int count = 0
    while count < MAX_VARINT_BYTES and stream_byte(body, left, &gathered[count]):
        count += 1
        if gathered[count - 1] < 0x80:
            return get_varint(gathered, gathered + count, value) != NULL
    return False


cdef bint stream_varlong(Body *body, int64_t *left, int64_t *value) noexcept nogil:
    cdef uint8_t gathered[10]
    cdef int count = 0
    while count < 10 and stream_byte(body, left, &gathered[count]):
        count += 1
        if gathered[count - 1] < 0x80:
            return get_varlong(gathered, gathered + count, value) != NULL
    return False


cdef bint stream_skip(Body *body, int64_t *left, int64_t size) noexcept nogil:
    cdef int64_t step
    if size > left[0]:
        return False
    left[0] -= size
    while size > 0:
        if body.at.pos == body.at.end and not refill(body):
            return False
        step = min(size, body.at.end - body.at.pos)
        body.at.pos += step
        size -= step
    return True


cdef bint stream_bytes(Body *body, int64_t *left, int32_t *size) noexcept nogil:
    """Skips a field that begins with its size (-1 for null)."""
    return stream_varint(body, left, size) and size[0] >= -1 and stream_skip(body, left, max(size[0], 0))


cdef bint stream_record(Body *body, int64_t left, RecordView *record) noexcept nogil:
    """Reads a record that spans several chunks. Skips its key, value and headers."""
    cdef int32_t count, size
    cdef uint8_t attributes
    if not (
        stream_byte(body, &left, &attributes)
        and stream_varlong(body, &left, &record.timestamp_delta)
        and stream_varint(body, &left, &record.offset_delta)
        and stream_bytes(body, &left, &record.key_size)
        and stream_bytes(body, &left, &record.value_size)
        and stream_varint(body, &left, &count)
    ):
        return False
    if count < 0 or count > left >> 1:
        return False
    while count > 0:
        if not stream_bytes(body, &left, &size) or size < 0 or not stream_bytes(body, &left, &size):
            return False
        count -= 1
    return left == 0


cdef inline bint read_record(Body *body, RecordView *record) noexcept nogil:
    cdef int32_t length = 0
    cdef int64_t left = MAX_VARINT_BYTES
    cdef const uint8_t *p = get_varint(body.at.pos, body.at.end, &length)
    if p != NULL and length <= body.at.end - p:
        return next_record(&body.at, record) == BATCH_OK
    if body.context == NULL:
        return False
    return stream_varint(body, &left, &length) and length > 0 and stream_record(body, length, record)


# --- records -------------------------------------------------------------------------------------------------------

ctypedef struct Bounds:          # the limits for one batch, computed once
    int64_t earliest
    int64_t latest
    bint asked                   # false with log append time, for which timestamps are not checked


cdef void bounds_of(Bounds *bounds, const ValidateRules *rules, int64_t now_ms) noexcept nogil:
    cdef int64_t before = max(rules.timestamp_before_max_ms, 0)
    cdef int64_t after = max(rules.timestamp_after_max_ms, 0)
    bounds.earliest = now_ms - before if now_ms >= INT64_MIN + before else INT64_MIN
    bounds.latest = now_ms + after if now_ms <= INT64_MAX - after else INT64_MAX
    bounds.asked = rules.timestamp_type == TIMESTAMP_CREATE


cdef void note(ValidateResult *result, int32_t index, int16_t error, const char *message) noexcept nogil:
    """Stores the error of a record. If any record has INVALID_TIMESTAMP, that becomes the error of the batch."""
    if result.error != INVALID_TIMESTAMP:
        result.error = error
    if result.error_count < MAX_RECORD_ERRORS:
        result.errors[result.error_count].batch_index = index
        result.errors[result.error_count].message = message
        result.error_count += 1


cdef inline int64_t judge(
    const RecordView *record, int32_t index, int64_t base_timestamp, bint compacted, const Bounds *bounds,
    ValidateResult *result
) noexcept nogil:
    """Checks one record. Returns its timestamp."""
    cdef int64_t timestamp = add64_wrapping(base_timestamp, record.timestamp_delta)
    if record.offset_delta != index:
        result.fault = FAULT_OFFSETS
        note(result, index, INVALID_RECORD, b"The record's offset delta is not its index in the batch.")
    elif compacted and record.key_size < 0:
        result.fault = FAULT_NO_KEY
        note(result, index, INVALID_RECORD, b"A compacted topic does not accept a record without a key.")
    elif bounds.asked and timestamp != NO_TIMESTAMP and (timestamp < bounds.earliest or timestamp > bounds.latest):
        note(result, index, INVALID_TIMESTAMP, b"The record's timestamp is outside the topic's bounds.")
    return timestamp


cdef int16_t refuse_body(ValidateResult *result, const Body *body) noexcept nogil:
    if body.status == CODEC_OK:
        return fail(result, INVALID_RECORD, b"A record of the batch is malformed, or the batch ends too early.")
    if body.status == CODEC_CORRUPT:
        return fail(result, INVALID_RECORD, b"The body of the batch does not inflate.")
    if body.status == CODEC_TOO_LARGE:
        return fail(result, MESSAGE_TOO_LARGE, b"The batch inflates beyond the limits of size or ratio.")
    if body.status == CODEC_NO_FILE:  # producers send the batch again after this error
        return fail(result, KAFKA_STORAGE_ERROR, b"The node has no free file descriptor to open the batch's codec.")
    return fail(result, UNKNOWN_SERVER_ERROR, b"The codec of the batch is not available, or no memory is left for it.")


cdef int16_t walk_records(
    const uint8_t *data, const ValidateRules *rules, int64_t now_ms, CodecContext *context, ValidateResult *result
) noexcept nogil:
    cdef Body body
    cdef Bounds bounds
    cdef RecordView record
    cdef int64_t timestamp
    cdef int64_t greatest = NO_TIMESTAMP
    cdef int64_t base_timestamp = result.header.base_timestamp
    cdef int32_t greatest_index = -1
    cdef int32_t count = result.header.record_count
    cdef int32_t index = 0
    cdef bint compacted = rules.compacted
    bounds_of(&bounds, rules, now_ms)
    open_body(&body, data, &result.header, rules, context)
    while index < count:
        if not read_record(&body, &record):
            return refuse_body(result, &body)
        timestamp = judge(&record, index, base_timestamp, compacted, &bounds, result)
        if timestamp > greatest:
            greatest = timestamp
            greatest_index = index
        index += 1
    if body.at.pos != body.at.end or refill(&body):
        return fail(result, INVALID_RECORD, b"Bytes follow the last record of the batch.")
    if body.status != CODEC_OK:
        return refuse_body(result, &body)
    result.max_timestamp = greatest
    result.max_timestamp_index = greatest_index
    result.body_bytes = body.bytes_before + (body.at.end - body.start)
    if result.error:
        result.message = (
            b"One or more records have been rejected due to invalid timestamp." if result.error == INVALID_TIMESTAMP
            else b"One or more records have been rejected."
        )
    return result.error


# --- the batch -----------------------------------------------------------------------------------------------------

cdef int16_t check_frame(
    const uint8_t *data, size_t size, const ValidateRules *rules, ValidateResult *result
) noexcept nogil:
    """Checks that the bytes are exactly one whole magic 2 batch, with an allowed size and a correct checksum."""
    cdef const BatchHeader *header = &result.header
    cdef BatchHeader next_header
    cdef int status = parse_header(data, size, &result.header)
    if status == BATCH_BAD_LENGTH or status == BATCH_BAD_MAGIC:
        return fail(result, CORRUPT_MESSAGE, b"The batch has an impossible length or magic byte.")
    if status == BATCH_SHORT:
        return fail(result, INVALID_RECORD, b"There is no whole record batch.")
    if header.magic < 2:
        result.fault = FAULT_MAGIC
        return fail(result, INVALID_RECORD, b"Only record batches with magic version 2 are accepted.")
    if <size_t> header.size_bytes > size:
        return fail(result, INVALID_RECORD, b"There is no whole record batch.")
    if batch_codec(header) == CODEC_ZSTD and not rules.zstd_allowed:
        return fail(result, UNSUPPORTED_COMPRESSION_TYPE, b"This version of Produce does not allow zstd.")
    if <size_t> header.size_bytes < size:
        status = parse_header(data + header.size_bytes, size - header.size_bytes, &next_header)
        if status == BATCH_BAD_LENGTH or status == BATCH_BAD_MAGIC:
            return fail(result, CORRUPT_MESSAGE, b"The bytes behind the batch have an impossible length or magic byte.")
        return fail(result, INVALID_RECORD, b"Exactly one record batch per partition is accepted.")
    if header.size_bytes > rules.max_message_bytes:
        return fail(result, MESSAGE_TOO_LARGE, b"The record batch is larger than max.message.bytes.")
    if crc32c(0, data + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != header.crc:
        result.fault = FAULT_CHECKSUM
        return fail(result, CORRUPT_MESSAGE, b"The checksum of the record batch does not match its bytes.")
    if batch_codec(header) > CODEC_ZSTD:
        return fail(result, UNSUPPORTED_COMPRESSION_TYPE, b"The batch's attributes name no known codec.")
    return 0


cdef int16_t check_client(const ValidateRules *rules, ValidateResult *result) noexcept nogil:
    """Checks the rules that apply only to clients."""
    cdef const BatchHeader *header = &result.header
    if header.base_offset != 0:
        result.fault = FAULT_OFFSETS
        return fail(result, INVALID_RECORD, b"The base offset of a produced batch must be 0.")
    if header.last_offset_delta < 0:
        result.fault = FAULT_OFFSETS
        return fail(result, INVALID_RECORD, b"The batch has an invalid range of offsets.")
    if header.record_count <= 0:
        result.fault = FAULT_OFFSETS
        return fail(result, INVALID_RECORD, b"The record count of the batch is not positive.")
    if header.record_count != header.last_offset_delta + <int64_t> 1:
        result.fault = FAULT_OFFSETS
        return fail(result, INVALID_RECORD, b"The record count of the batch does not match its range of offsets.")
    if is_control(header):
        return fail(result, INVALID_RECORD, b"Clients are not allowed to write control records.")
    if has_producer_id(header) and (header.base_sequence < 0 or header.producer_epoch < 0):
        result.fault = FAULT_OFFSETS
        return fail(result, INVALID_RECORD, b"A batch with a producer id needs its epoch and sequence.")
    if is_transactional(header) and not has_producer_id(header):
        return fail(result, INVALID_RECORD, b"A transactional batch needs a producer id.")
    if is_transactional(header) and not rules.transactional_allowed and rules.origin == ORIGIN_CLIENT:
        return fail(result, INVALID_TXN_STATE, b"Transactions are not available.")
    return 0


cdef int16_t validate_batch(
    const uint8_t *data, size_t size, const ValidateRules *rules, int64_t now_ms, CodecContext *context,
    ValidateResult *result
) noexcept nogil:
    cdef BatchHeader *header = &result.header
    memset(result, 0, sizeof(ValidateResult))
    result.log_append_time_ms = -1
    if check_frame(data, size, rules, result):
        return result.error
    if is_from_client(rules.origin):
        if check_client(rules, result):
            return result.error
    elif header.record_count < 0:
        return fail(result, INVALID_RECORD, b"The batch has a negative count of records.")
    elif rules.origin == ORIGIN_RAFT_LEADER and header.partition_leader_epoch != rules.leader_epoch:
        return fail(result, INVALID_RECORD, b"The Raft leader's batch does not carry its epoch.")
    if timestamp_type(header) == TIMESTAMP_LOG_APPEND:
        return fail(result, INVALID_TIMESTAMP, b"A producer must not set the timestamp type to log append time.")
    if walk_records(data, rules, now_ms, context, result):
        return result.error
    result.timestamp_type = rules.timestamp_type
    if rules.timestamp_type == TIMESTAMP_LOG_APPEND:
        result.max_timestamp = result.log_append_time_ms = now_ms
        result.max_timestamp_index = header.last_offset_delta
    result.codec = batch_codec(header)
    if rules.target_codec != TARGET_PRODUCER and not (is_control(header) and result.codec == CODEC_NONE):
        result.codec = rules.target_codec
    result.rewrite = result.codec != batch_codec(header)
    result.stamp = timestamp_type(header) != result.timestamp_type or header.max_timestamp != result.max_timestamp
    return 0


cdef void stamp_batch(uint8_t *data, size_t size, const ValidateResult *result) noexcept nogil:
    set_timestamps(data, size, result.timestamp_type, result.max_timestamp)


cdef size_t rewrite_room(const ValidateResult *result) noexcept nogil:
    return <size_t> result.body_bytes + <size_t> result.body_bytes // 5 + FRAMING_BYTES


cdef int16_t status_to_error(int status) noexcept nogil:
    if status == CODEC_NO_FILE:
        return KAFKA_STORAGE_ERROR
    return MESSAGE_TOO_LARGE if status == CODEC_TOO_LARGE else UNKNOWN_SERVER_ERROR


cdef int recode_body(
    const uint8_t *data, const ValidateRules *rules, const ValidateResult *result, CodecContext *context, Writer *out
) noexcept nogil:
    """Writes the records, compressed with `result.codec`. The uncompressed records keep their bytes: a record contains
    only deltas, and the base values of these deltas do not change."""
    cdef Writer plain
    cdef const uint8_t *body = data + HEADER_BYTES
    cdef size_t size = result.header.size_bytes - HEADER_BYTES
    cdef int source = batch_codec(&result.header)
    cdef int status = CODEC_OK
    if source == CODEC_NONE:
        return deflate_all(context, result.codec, rules.target_level, body, size, out)
    if result.codec == CODEC_NONE:
        return inflate_all(context, source, body, size, &rules.limits, out)
    writer_init(&plain, <size_t> result.body_bytes)
    status = inflate_all(context, source, body, size, &rules.limits, &plain)
    if status == CODEC_OK:
        status = deflate_all(context, result.codec, rules.target_level, plain.data, plain.size, out)
    writer_free(&plain)
    return status


cdef int16_t rewrite_batch(
    const uint8_t *data, size_t size, const ValidateRules *rules, const ValidateResult *result, CodecContext *context,
    Writer *out
) noexcept nogil:
    cdef size_t start = out.size
    cdef size_t written
    cdef int attributes = result.header.attributes & KNOWN_ATTRIBUTES & ~(CODEC_MASK | LOG_APPEND_TIME)
    cdef uint8_t *batch
    cdef int status
    write_raw(out, data, HEADER_BYTES)
    if out.bad:
        return MESSAGE_TOO_LARGE
    status = recode_body(data, rules, result, context, out)
    written = out.size - start
    if status != CODEC_OK:
        return status_to_error(status)
    if written > <size_t> rules.max_message_bytes:
        return MESSAGE_TOO_LARGE
    attributes |= result.codec
    if result.timestamp_type == TIMESTAMP_LOG_APPEND:
        attributes |= LOG_APPEND_TIME
    batch = out.data + start
    put32(batch + 8, <int32_t> written - LOG_OVERHEAD)
    put16(batch + ATTRIBUTES_AT, attributes)
    put64(batch + 35, result.max_timestamp)
    put32(batch + CRC_AT, crc32c(0, batch + ATTRIBUTES_AT, written - ATTRIBUTES_AT))
    return 0


# --- the fetches of a follower ---------------------------------------------------------------------------------------

cdef inline int16_t fail_batches(BatchesResult *result, int16_t error, const char *message) noexcept nogil:
    result.error = error
    result.message = message
    return error


cdef int16_t check_batches(
    const uint8_t *data, size_t size, int32_t leader_epoch, BatchesResult *result
) noexcept nogil:
    cdef BatchHeader header
    cdef int status
    result.error = 0
    result.message = NULL
    result.batch_count = 0
    result.valid_bytes = 0
    result.first_offset = result.last_offset = result.max_timestamp = -1
    result.last_leader_epoch = NO_PARTITION_LEADER_EPOCH
    while result.valid_bytes < size:
        status = check_batch(data + result.valid_bytes, size - result.valid_bytes, &header)
        if status == BATCH_SHORT:
            return 0
        if status == BATCH_BAD_CRC:
            return fail_batches(result, CORRUPT_MESSAGE, b"The checksum of a record batch does not match its bytes.")
        if status != BATCH_OK:
            return fail_batches(result, CORRUPT_MESSAGE, b"A record batch has an impossible length or magic byte.")
        if header.magic >= 2 and header.partition_leader_epoch > leader_epoch:
            return 0
        if header.last_offset_delta < 0 or (result.batch_count and last_offset(&header) <= result.last_offset):
            return fail_batches(result, CORRUPT_MESSAGE, b"The offsets of the record batches do not grow.")
        if result.batch_count == 0:
            result.first_offset = header.base_offset
        result.batch_count += 1
        result.valid_bytes += header.size_bytes
        result.last_offset = last_offset(&header)
        result.max_timestamp = max(result.max_timestamp, header.max_timestamp)
        result.last_leader_epoch = header.partition_leader_epoch
    return 0
