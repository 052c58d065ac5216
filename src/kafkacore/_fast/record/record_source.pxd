"""Sources from which a batch builder copies records, without creating an object for each record."""

from libc.stdint cimport int64_t

from kafkacore._fast.record.record cimport BatchBuilder


cdef class RecordSource:
    # Appends all records of the source to the builder. Returns a `BatchStatus` (record.pxd). If that is not BATCH_OK,
    # some records may be in the builder, and the caller must remove them.
    cdef int append_to(self, BatchBuilder *builder, int64_t timestamp) noexcept nogil
