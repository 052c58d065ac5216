"""Implements record_source.pxd: the base class of sources of records."""

from libc.stdint cimport int64_t

from kafkacore._fast.record.record cimport BATCH_OK, BatchBuilder


cdef class RecordSource:

    cdef int append_to(self, BatchBuilder *builder, int64_t timestamp) noexcept nogil:
        return BATCH_OK

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(())
