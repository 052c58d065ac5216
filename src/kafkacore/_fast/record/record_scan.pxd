"""A scan that looks into batches: their bodies, inflated where they are compressed, in one block that is used again."""

from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.record.batch_scan cimport BatchScan


cdef class RecordScan(BatchScan):
    cdef Codec codec
    cdef Writer inflated     # the body opened last
    # A reader over the records of the batch at hand (magic 2): BATCH_OK or another BatchStatus.
    cdef int open_body(self, Reader *body) noexcept nogil
    # The same of magic 0 and 1: over the entries, whose offsets count from `base_offset`.
    cdef int open_entries(self, Reader *entries, int64_t *base_offset) noexcept nogil
    cdef int inflate(self, int codec, const uint8_t *data, size_t size, Reader *body) noexcept nogil
