"""The partition table: topic id or name, and index, to Partition. Immutable and counted; the publisher makes a new one, hands
it to each processor by mail, and the old one goes when all have taken it. Processors look up without a lock or a count."""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.partition cimport Partition

ctypedef struct PartitionTable  # table.pyx owns its layout

cdef void table_hold(PartitionTable *table) noexcept nogil
cdef void table_release(PartitionTable *table) noexcept nogil
cdef Partition *table_find_id(const PartitionTable *table, const uint8_t *topic_id, int32_t index) noexcept nogil
cdef Partition *table_find_name(const PartitionTable *table, const uint8_t *topic, int32_t size, int32_t index) noexcept nogil
# Whether the topic is known at all: tells UNKNOWN_TOPIC_ID from UNKNOWN_TOPIC_OR_PARTITION.
cdef bint table_knows_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil
