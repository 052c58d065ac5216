"""The Python interface of `record`: batches and records as objects. Each object keeps alive the bytes into which it
points."""

from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.base.cursor cimport Reader
from kafkacore._fast.record.record cimport BatchHeader, RecordView


# Keeps alive the bytes into which batches and records point: either the buffer of another object, or a block that the
# `Body` owns.
cdef class Body:
    cdef Py_buffer view
    cdef bint borrowed
    cdef uint8_t *owned
    cdef const uint8_t *data
    cdef size_t size


cdef class Record:
    cdef Body body
    cdef RecordView view
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp


cdef class RecordIterator:
    cdef Body body
    cdef Reader reader
    cdef BatchHeader header
    cdef int64_t left


cdef class Batch:
    cdef Body body
    cdef const uint8_t *start
    cdef BatchHeader header
    cdef Codec codec
    cdef Body inflated(self)


cdef class Batches:
    cdef Body body
    cdef Codec codec
    cdef size_t at
