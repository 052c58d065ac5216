"""Sources from which a builder copies records, without an object for each record."""

from libc.stdint cimport int64_t

from kafkacore._fast.record.record cimport BatchBuilder


cdef class RecordSource:
    # Appends all of its records to the builder. Returns a BatchStatus. If that is not BATCH_OK, some records may be in
    # the builder; the caller takes them back.
    cdef int append_to(self, BatchBuilder *builder, int64_t timestamp) noexcept nogil
