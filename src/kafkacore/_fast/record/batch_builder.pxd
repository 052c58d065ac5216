"""The Python interface of `BatchBuilder` (record.pxd)."""

from libc.stdint cimport int64_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.record.record cimport BatchBuilder


cdef class RecordBatchBuilder:
    cdef BatchBuilder builder
    cdef Writer headers          # the encoded headers of the record that is being added
    cdef int codec
    cdef int level
    cdef bint closed
    cdef int append_pairs(self, int64_t timestamp, pairs) except -100
    cdef int add(
        self, int64_t timestamp, key, value, headers, int offset_delta, Py_buffer *views, int *held
    ) except -100
