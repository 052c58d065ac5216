"""OffsetCommit from the wire to the log and back, without an object for a partition: the request is read into C structs
that lie in its own arena, its records go into a batch from there, and so does the answer's body.

An OffsetCommit is its caller's, under the GIL; the bytes that it was read from are its own.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.hot.offset_records cimport OffsetFields
from kafkacore._fast.record.record_source cimport RecordSource
from kafkacore._fast.schema.schema cimport Array, Slice
from kafkacore._fast.schema.view cimport Arena

# Request and response use the same structs: what a response says of a partition is kept where the request has it.
ctypedef struct CommittedPartition:
    int32_t partition_index
    int32_t committed_leader_epoch      # 6+, default -1
    int64_t committed_offset
    Slice committed_metadata            # may be null
    int16_t error_code                  # of the response, as last written
    int16_t refused                     # what is wrong with this one; 0: it is committed, if anything is

ctypedef struct CommittedTopic:
    Slice name                          # until 9, and once it was found
    uint8_t topic_id[16]                # 10+, and once it was found
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
    cdef readonly str group_instance_id         # None where nothing was said
    cdef readonly int32_t generation_id_or_member_epoch
    cdef readonly int64_t retention_time_ms
    cdef readonly list names                    # of topics; empty until found where the request says an id
    cdef public int16_t error                   # told of every partition that the group was asked for
    cdef int16_t too_large                      # what `accept` refuses with; 0 before
    cdef bytes body                             # all slices point into it, or into `found`
    cdef list found                             # names as bytes
    cdef Arena arena
    cdef CommitRequest *request                 # in the arena
    cdef OffsetFields written                   # what all values have in common
    cdef int32_t metadata_size                  # of the longest
    cdef uint8_t *scratch                       # in the arena: room for a key and a value, the longest there are
    cdef size_t scratch_size

    cdef int refuse_body(self, int fault) except -1
    cdef int take_texts(self) except -1
    cdef int make_room(self, int32_t name_size) except -1
    cdef CommittedTopic *topic(self, Py_ssize_t number) except NULL
