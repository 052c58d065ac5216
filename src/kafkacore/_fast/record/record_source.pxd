"""Records that a batch takes from where they lie, without an object for each of them."""

from libc.stdint cimport int64_t

from kafkacore._fast.record.record cimport BatchBuilder


cdef class RecordSource:
    # Adds all of its records, behind those that are there: a BatchStatus. After another one than BATCH_OK some may have
    # been added: the caller takes them back.
    cdef int append_to(self, BatchBuilder *builder, int64_t timestamp) noexcept nogil
