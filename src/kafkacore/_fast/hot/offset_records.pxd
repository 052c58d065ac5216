"""Writes and reads the keys and values of committed offsets: OffsetCommitKey and OffsetCommitValue (coordinator-key and
coordinator-value in `protocol/tables`). A test compares these layouts with the tables.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.schema.schema cimport Slice

cdef enum:
    OFFSET_KEY_BYTES = 2 + 2 + 2 + 4           # bytes of a key without the group and topic names
    OFFSET_VALUE_BYTES = 2 + 8 + 4 + 5 + 8 + 19  # the largest size of a value without its metadata
    TOPIC_ID_BYTES = 16

ctypedef struct OffsetFields:
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp    # -1 for none
    uint8_t topic_id[16]        # all zeros for none
    Slice metadata              # not owned; null metadata is written as an empty text
    int32_t leader_epoch

# Both functions write to `p` and return the position after the last written byte. The caller must provide enough
# memory. The names of the group and the topic must have at most 32767 bytes.
cdef uint8_t *put_offset_key(uint8_t *p, const Slice *group, const Slice *topic, int32_t partition) noexcept nogil
# Writes a value of version 1 if the offset has an expire timestamp, because only version 1 has this field. Otherwise
# writes version 4.
cdef uint8_t *put_offset_value(uint8_t *p, const OffsetFields *fields) noexcept nogil
# Raises ValueError unless `topic_id` is 16 bytes.
cdef int copy_topic_id(uint8_t *into, topic_id) except -1
