"""The committed offsets of a group for one topic: a row for each partition, in order of arrival, and a hash of their
indexes. A row owns its metadata. Belongs to one thread, under the GIL.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from kafkacore._fast.hot.offset_records cimport OffsetFields

ctypedef struct OffsetRow:
    OffsetFields fields         # its metadata is owned; NULL with a size of 0 when it is empty
    int32_t partition


cdef class TopicOffsets:
    cdef OffsetRow *rows
    cdef int32_t count
    cdef int32_t capacity
    cdef int32_t *slots         # by the partition's hash, linear probing: 1 + the number of its row; 0 is free
    cdef uint32_t mask          # of slots; 0 while there are none
    cdef int32_t last           # the row found last: a client sends its partitions in the same order each time

    cdef int32_t row_of(self, int32_t partition) noexcept
    cdef int put_row(self, int32_t partition, const OffsetFields *fields) except -1
    cdef int grow(self) except -1
    cdef uint32_t slot_of(self, int32_t row) noexcept
    cdef void free_slot(self, uint32_t hole) noexcept
