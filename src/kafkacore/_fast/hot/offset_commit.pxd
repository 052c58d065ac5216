"""Handles OffsetCommit without a Python object for each partition. This module parses the request into C structs in an
arena (a block of memory that is freed as a whole). From these structs it writes the records for the log and the body of
the answer.

An `OffsetCommit` belongs to its caller, which must hold the GIL. The object keeps the bytes of the request alive.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.hot.offset_records cimport OffsetFields
from kafkacore._fast.record.record_source cimport RecordSource
from kafkacore._fast.schema.schema cimport Array, Slice
from kafkacore._fast.schema.view cimport Arena

# The request and the response share these structs, which have the fields of both messages.
ctypedef struct CommittedPartition:
    int32_t partition_index
    int32_t committed_leader_epoch      # since version 6, default -1
    int64_t committed_offset
    Slice committed_metadata            # may be null
    int16_t error_code                  # the error code that was last written to a response
    int16_t refused  # the reason why this partition is not committed; 0 if it is committed

ctypedef struct CommittedTopic:
    Slice name                          # valid up to version 9, or after the topic was found
    uint8_t topic_id[16]                # valid since version 10, or after the topic was found
    Array partitions                    # of `CommittedPartition` structs

ctypedef struct CommitRequest:
    Slice group_id
    Slice member_id
    Slice group_instance_id             # since version 7, may be null
    int64_t retention_time_ms           # up to version 4, default -1
    int32_t generation_id_or_member_epoch
    int32_t throttle_time_ms            # field of the response, since version 3
    Array topics                        # of `CommittedTopic` structs


cdef class OffsetCommit(RecordSource):
    cdef readonly int version
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly str group_instance_id         # None if absent
    cdef readonly int32_t generation_id_or_member_epoch
    cdef readonly int64_t retention_time_ms
    cdef readonly list names                    # names of the topics read so far; with topic ids, empty until `find`
    cdef public int16_t error                   # the error for every partition that has no error of its own
    cdef int16_t too_large                      # the error of partitions with too much metadata; 0 before `accept`
    cdef bytes body                             # all slices point into `body` or into `found`
    cdef list found                             # topic names as bytes
    cdef Arena arena
    cdef CommitRequest *request                 # points into the arena
    cdef OffsetFields written                   # the fields that all record values share
    cdef int32_t metadata_size                  # size of the longest metadata
    cdef int32_t name_size                      # size of the longest topic name
    cdef uint8_t *scratch                       # points into the arena: room for the longest key and value
    cdef size_t scratch_size

    cdef int refuse_body(self, int fault) except -1
    cdef int take_texts(self) except -1
    cdef int refuse_text(self, error) except -1
    cdef int make_room(self, int32_t name_size) except -1
    cdef CommittedTopic *topic(self, Py_ssize_t number) except NULL
