"""Keys and values of committed offsets: the layouts of OffsetCommitKey and OffsetCommitValue (`protocol/tables`,
coordinator-key and coordinator-value). A test compares them with the tables.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.schema.schema cimport Slice

cdef enum:
    OFFSET_KEY_BYTES = 2 + 2 + 2 + 4           # of a key, without its group and its topic
    OFFSET_VALUE_BYTES = 2 + 8 + 4 + 5 + 8 + 19  # the most bytes of a value, without its metadata
    TOPIC_ID_BYTES = 16

ctypedef struct OffsetFields:
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp    # -1: none
    uint8_t topic_id[16]        # zeros: none
    Slice metadata              # not owned; a null one is written empty
    int32_t leader_epoch

# Both write to memory that the caller has made large enough, and return the end. Group and topic have at most 32767
# bytes.
cdef uint8_t *put_offset_key(uint8_t *p, const Slice *group, const Slice *topic, int32_t partition) noexcept nogil
# Writes version 1 if there is an expire timestamp, which only version 1 has; otherwise version 4.
cdef uint8_t *put_offset_value(uint8_t *p, const OffsetFields *fields) noexcept nogil
# Raises ValueError unless `topic_id` is 16 bytes.
cdef int copy_topic_id(uint8_t *into, topic_id) except -1
