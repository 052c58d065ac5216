"""Implements message_set.pxd: reads messages of old releases one by one."""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader, read_i32, reader_init, remaining, take
from kafkacore._fast.record.record cimport (
    BATCH_BAD_RECORD, BATCH_OK, BATCH_SHORT, BatchHeader, batch_checksum, parse_header,
)

cdef enum:
    KEY_AT_V0 = 18
    KEY_AT_V1 = 26    # in magic 1, a timestamp precedes the key


cdef const uint8_t *take_bytes(Reader *reader, int32_t *size) noexcept nogil:
    """Reads a size (negative for null), and that many bytes."""
    size[0] = read_i32(reader)
    if size[0] < 0:
        size[0] = -1
        return NULL
    return take(reader, size[0])


cdef int next_message(Reader *entries, OldMessage *message) noexcept nogil:
    cdef BatchHeader header
    cdef Reader body
    cdef const uint8_t *start = entries.pos
    cdef int status = parse_header(start, remaining(entries), &header)
    if status == BATCH_SHORT or (status == BATCH_OK and <size_t> header.size_bytes > remaining(entries)):
        return BATCH_SHORT
    if status != BATCH_OK or header.magic > 1:
        return BATCH_BAD_RECORD
    entries.pos += header.size_bytes
    reader_init(&body, start, header.size_bytes)
    take(&body, KEY_AT_V1 if header.magic == 1 else KEY_AT_V0)
    message.key = take_bytes(&body, &message.key_size)
    message.value = take_bytes(&body, &message.value_size)
    message.offset = header.base_offset
    message.timestamp_ms = header.base_timestamp
    message.crc = header.crc
    message.magic = header.magic
    message.attributes = <int8_t> header.attributes
    message.valid = batch_checksum(start, header.size_bytes) == header.crc
    return BATCH_BAD_RECORD if body.bad else BATCH_OK
