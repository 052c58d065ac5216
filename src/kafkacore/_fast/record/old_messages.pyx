"""Implements old_messages.pxd: reads messages of magic 0 and 1."""

from kafkacore._fast.codec.context cimport CODEC_NONE
from kafkacore._fast.base.cursor cimport be32, writer_free, writer_init
from kafkacore._fast.record.record cimport (
    BATCH_BAD_RECORD, BATCH_OK, LOG_APPEND_TIME, OLD_KEY_AT, TIMESTAMP_BYTES, add64_wrapping, batch_codec,
    open_wrapper, parse_header,
)


cdef int old_messages_open(OldMessages *messages, const uint8_t *entry, const BatchHeader *header,
                           CodecContext *context, const InflateLimits *limits) noexcept nogil:
    cdef int status = BATCH_OK
    messages.entry = header
    messages.at = 0
    messages.base_offset = 0
    messages.data = entry
    messages.size = <size_t> header.size_bytes
    if batch_codec(header) == CODEC_NONE:
        writer_init(&messages.inflated, 0)
        return BATCH_OK
    status = open_wrapper(entry, header, context, limits, &messages.inflated, &messages.base_offset)
    messages.data = messages.inflated.data
    messages.size = messages.inflated.size
    return status


cdef bint old_messages_more(const OldMessages *messages) noexcept nogil:
    return messages.at < messages.size


cdef const uint8_t *field(const uint8_t *p, const uint8_t *end, const uint8_t **data, int32_t *size) noexcept nogil:
    """Reads a field that begins with a four-byte size (-1 for null). Returns the end of the field, or NULL if the field
    does not fit."""
    data[0] = NULL
    if p == NULL or end - p < 4:
        return NULL
    size[0] = <int32_t> be32(p)
    p += 4
    if size[0] == -1:
        return p
    if size[0] < 0 or size[0] > end - p:
        return NULL
    data[0] = p
    return p + size[0]


cdef int old_messages_next(OldMessages *messages, OldMessage *message) noexcept nogil:
    cdef BatchHeader header
    cdef const uint8_t *p = messages.data + messages.at
    cdef const uint8_t *end
    if parse_header(p, messages.size - messages.at, &header) != BATCH_OK or header.magic >= 2 or (
            <size_t> header.size_bytes > messages.size - messages.at):
        return BATCH_BAD_RECORD
    messages.at += <size_t> header.size_bytes
    end = p + header.size_bytes
    message.offset = add64_wrapping(messages.base_offset, header.base_offset)
    message.timestamp = header.max_timestamp
    if messages.entry.attributes & LOG_APPEND_TIME and messages.entry.magic == 1:
        message.timestamp = messages.entry.max_timestamp
    p += OLD_KEY_AT if header.magic == 1 else OLD_KEY_AT - TIMESTAMP_BYTES
    p = field(p, end, &message.key, &message.key_size)
    p = field(p, end, &message.value, &message.value_size)
    return BATCH_OK if p == end else BATCH_BAD_RECORD


cdef void old_messages_close(OldMessages *messages) noexcept nogil:
    writer_free(&messages.inflated)
