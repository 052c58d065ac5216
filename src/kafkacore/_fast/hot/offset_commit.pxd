"""OffsetCommit from the wire to the log and back, without a Python object for each partition. It parses the request
into C structs in an arena, and writes the records of the batch and the body of the answer from them.

An OffsetCommit belongs to its caller, under the GIL. It keeps the bytes that it was parsed from.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.hot.offset_records cimport OffsetFields
from kafkacore._fast.record.record_source cimport RecordSource
from kafkacore._fast.schema.schema cimport Array, Slice
from kafkacore._fast.schema.view cimport Arena

# Request and response share these structs, which have the fields of both.
ctypedef struct CommittedPartition:
    int32_t partition_index
    int32_t committed_leader_epoch      # 6+, default -1
    int64_t committed_offset
    Slice committed_metadata            # may be null
    int16_t error_code                  # the response's, as last written
    int16_t refused                     # the error of this partition; 0: committed if the group accepts the commit

ctypedef struct CommittedTopic:
    Slice name                          # until version 9, or after the topic was found
    uint8_t topic_id[16]                # since version 10, or after the topic was found
    Array partitions                    # of CommittedPartition

ctypedef struct CommitRequest:
    Slice group_id
    Slice member_id
    Slice group_instance_id             # 7+, may be null
    int64_t retention_time_ms           # until 4, default -1
    int32_t generation_id_or_member_epoch
    int32_t throttle_time_ms            # of the response, 3+
    Array topics                        # of CommittedTopic


cdef class OffsetCommit(RecordSource):
    cdef readonly int version
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly str group_instance_id         # None when absent
    cdef readonly int32_t generation_id_or_member_epoch
    cdef readonly int64_t retention_time_ms
    cdef readonly list names                    # of topics; empty until found when the request has a topic id
    cdef public int16_t error                   # the error for every partition that the group decides about
    cdef int16_t too_large                      # the error that `accept` refused with; 0 before
    cdef bytes body                             # all slices point into it, or into `found`
    cdef list found                             # names as bytes
    cdef Arena arena
    cdef CommitRequest *request                 # in the arena
    cdef OffsetFields written                   # the fields that all values share
    cdef int32_t metadata_size                  # the longest
    cdef uint8_t *scratch                       # in the arena: room for the longest key and value
    cdef size_t scratch_size

    cdef int refuse_body(self, int fault) except -1
    cdef int take_texts(self) except -1
    cdef int make_room(self, int32_t name_size) except -1
    cdef CommittedTopic *topic(self, Py_ssize_t number) except NULL
