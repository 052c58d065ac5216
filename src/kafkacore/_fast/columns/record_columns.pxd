"""Decodes record batches of one partition into Arrow columns. Only one thread at a time may use a `RecordColumns`."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.columns.aborted cimport Aborted
from kafkacore._fast.columns.arrow cimport Shared
from kafkacore._fast.columns.rows cimport Rows
from kafkacore._fast.record.record cimport BatchHeader

cdef enum DecodeStatus:          # in addition to the values of `BatchStatus` (record.pxd)
    DECODE_FULL = 1              # the rows fill an Arrow batch
    DECODE_DRY = 0               # all bytes that were passed to `feed` are decoded


cdef class Fed:                  # the whole batches that one call of `feed` has accepted
    cdef Py_buffer view
    cdef bint held               # whether the view must be released
    cdef const uint8_t *data
    cdef size_t size             # size of the whole batches
    cdef size_t at               # position of the next batch
    cdef int64_t start
    cdef int64_t end
    cdef Aborted aborted


cdef class RecordColumns:
    cdef Rows rows
    cdef Shared *constants
    cdef int64_t max_rows
    cdef int64_t max_bytes
    cdef bint check_crcs
    cdef Codec codec
    cdef Writer inflated         # the body that is being decoded
    cdef object fed              # a deque of `Fed` objects
    cdef Fed current
    cdef BatchHeader header      # the header of the batch that is being decoded
    cdef Reader body
    cdef int64_t left            # the records of this batch that have not been decoded; -1 if no batch is open
    cdef int64_t entries_base    # for magic 0 and 1: the number that is added to the offset of each message
    cdef bint is_set             # for magic 0 and 1: whether the body is the value of a compressed wrapper message
    cdef int64_t waiting_bytes   # bytes that were passed to `feed` but are not decoded yet
    cdef readonly int64_t next_offset
    cdef readonly str place      # topic-partition, for error messages
    cdef int decode(self, Fed fed) noexcept nogil
    cdef int open_next(self, Fed fed) noexcept nogil
    cdef int open_batch(self, Fed fed, const uint8_t *data) noexcept nogil
    cdef int open_set(self, const uint8_t *data) noexcept nogil
    cdef int add_records(self, Fed fed) noexcept nogil
    cdef int add_messages(self, Fed fed) noexcept nogil
    cdef int end_batch(self) noexcept nogil
