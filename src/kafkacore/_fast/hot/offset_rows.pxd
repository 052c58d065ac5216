"""The committed offsets of a group for one topic: a row for each partition, in order of arrival, and a hash table from
partition indexes to rows. A row owns its metadata. Only a thread that holds the GIL may use a `TopicOffsets`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.hot.offset_records cimport OffsetFields

ctypedef struct OffsetRow:
    OffsetFields fields         # the row owns the metadata; empty metadata is NULL with size 0
    int64_t at                  # the log position of the commit that set this row; an earlier commit changes nothing
    int32_t partition


cdef class TopicOffsets:
    cdef OffsetRow *rows
    cdef int32_t count
    cdef int32_t capacity
    cdef int32_t *slots         # hash table with linear probing: 1 + the index of the partition's row; 0 is free
    cdef uint32_t mask          # the number of slots minus one; 0 if there are none
    cdef int32_t last           # the row that was found last; a look-up first tries the row after this one

    cdef int32_t row_of(self, int32_t partition) noexcept
    cdef int put_row(self, int32_t partition, const OffsetFields *fields, int64_t at) except -1
    cdef int grow(self) except -1
    cdef uint32_t slot_of(self, int32_t row) noexcept
    cdef void free_slot(self, uint32_t hole) noexcept
