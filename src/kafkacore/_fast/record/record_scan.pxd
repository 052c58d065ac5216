"""A scan (batch_scan.pxd) that also reads the bodies of batches. It inflates all compressed bodies into the same block
of memory.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.record.batch_scan cimport BatchScan


cdef class RecordScan(BatchScan):
    cdef Codec codec
    cdef Writer inflated     # the body that was opened last
    # Sets `body` to a reader over the records of the current batch (magic 2). Returns a `BatchStatus` (record.pxd).
    cdef int open_body(self, Reader *body) noexcept nogil
    # Like `open_body`, for magic 0 and 1: sets `entries` to a reader over the entries, whose offsets are relative to
    # `base_offset`.
    cdef int open_entries(self, Reader *entries, int64_t *base_offset) noexcept nogil
    cdef int inflate(self, int codec, const uint8_t *data, size_t size, Reader *body) noexcept nogil
