"""Implements record_scan.pxd: scans batches and their records."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.codec.context cimport CODEC_NONE, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, inflate_all
from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.base.cursor cimport Reader, reader_init, writer_free, writer_init
from kafkacore._fast.record.message_set cimport OldMessage, next_message
from kafkacore._fast.record.record cimport (
    BATCH_BAD_CODEC, BATCH_BAD_CRC, BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK, BATCH_TOO_LARGE, HEADER_BYTES,
    LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, RecordView, batch_codec, next_record, record_timestamp,
)
from kafkacore._fast.record.batch_scan cimport FAULT_OFFSETS, FAULT_TIMESTAMP, BatchScan

cdef enum:
    # The limit for the inflated body of one batch. A lower limit is not needed, because a broker has accepted the
    # batches on disk.
    MAX_INFLATED_BYTES = 0x7FFFFFFF


cdef class RecordScan(BatchScan):
    def __cinit__(self, *args, **kwargs):
        writer_init(&self.inflated, MAX_INFLATED_BYTES)
        self.codec = Codec()
        self.codec.limits.max_bytes = MAX_INFLATED_BYTES
        self.codec.limits.ratio_floor_bytes = MAX_INFLATED_BYTES

    def __dealloc__(self):
        writer_free(&self.inflated)

    cdef int inflate(self, int codec, const uint8_t *data, size_t size, Reader *body) noexcept nogil:
        cdef int status
        self.inflated.size = 0
        self.inflated.bad = False
        status = inflate_all(self.codec.context, codec, data, size, &self.codec.limits, &self.inflated)
        reader_init(body, self.inflated.data, self.inflated.size)
        if status == CODEC_OK:
            return BATCH_OK
        if status == CODEC_NO_MEMORY:
            return BATCH_NO_MEMORY
        return BATCH_TOO_LARGE if status == CODEC_TOO_LARGE else BATCH_BAD_CODEC

    cdef int open_body(self, Reader *body) noexcept nogil:
        cdef const uint8_t *data = self.at_hand + HEADER_BYTES
        cdef size_t size = self.header.size_bytes - HEADER_BYTES
        cdef int codec = batch_codec(&self.header)
        if codec == CODEC_NONE:
            reader_init(body, data, size)
            return BATCH_OK
        return self.inflate(codec, data, size, body)

    cdef int open_entries(self, Reader *entries, int64_t *base_offset) noexcept nogil:
        cdef OldMessage wrapper, inner
        cdef Reader ahead
        cdef int codec = batch_codec(&self.header)
        cdef int status
        base_offset[0] = 0
        reader_init(entries, self.at_hand, self.header.size_bytes)
        if codec == CODEC_NONE:
            return BATCH_OK
        status = next_message(entries, &wrapper)
        if status != BATCH_OK or wrapper.value_size < 0:
            return BATCH_BAD_RECORD
        status = self.inflate(codec, wrapper.value, wrapper.value_size, entries)
        if status != BATCH_OK:
            return status
        ahead = entries[0]
        status = next_message(&ahead, &inner)
        if status != BATCH_OK:
            return BATCH_BAD_RECORD
        while status == BATCH_OK:
            status = next_message(&ahead, &inner)
        # The wrapper should have the offset of the last message. Old producers sent 0 instead, and no broker corrected
        # it.
        if wrapper.magic == 0 or wrapper.offset == 0:
            return BATCH_OK
        if not 0 <= inner.offset <= wrapper.offset:
            return BATCH_BAD_RECORD
        base_offset[0] = wrapper.offset - inner.offset
        return BATCH_OK

    cdef int fault_of_batch(self) noexcept nogil:
        cdef Reader body
        cdef int64_t base_offset
        cdef int fault = BatchScan.fault_of_batch(self)
        if fault != BATCH_OK or self.header.magic > 2:
            return fault
        if self.header.magic < 2:
            fault = self.open_entries(&body, &base_offset)
            return fault if fault != BATCH_OK else fault_of_messages(&body)
        fault = self.open_body(&body)
        return fault if fault != BATCH_OK else fault_of_records(&self.header, &body)


cdef int fault_of_messages(Reader *entries) noexcept nogil:
    cdef OldMessage message
    cdef int status = next_message(entries, &message)
    while status == BATCH_OK:
        if not message.valid:
            return BATCH_BAD_CRC
        status = next_message(entries, &message)
    return BATCH_OK if entries.pos == entries.end else BATCH_BAD_RECORD


cdef int fault_of_records(const BatchHeader *header, Reader *body) noexcept nogil:
    cdef RecordView record
    cdef int64_t timestamp
    cdef int64_t greatest = NO_TIMESTAMP
    cdef int64_t before = -1  # the offset delta of the previous record
    cdef int32_t _left
    for _left in range(header.record_count):
        if next_record(body, &record) != BATCH_OK:
            return BATCH_BAD_RECORD
        if record.offset_delta <= before or record.offset_delta > header.last_offset_delta:
            return FAULT_OFFSETS
        before = record.offset_delta
        timestamp = record_timestamp(header, &record)
        if timestamp > greatest:
            greatest = timestamp
    if body.pos != body.end:
        return BATCH_BAD_RECORD
    if header.record_count > 0 and not header.attributes & LOG_APPEND_TIME and greatest != header.max_timestamp:
        return FAULT_TIMESTAMP
    return BATCH_OK
