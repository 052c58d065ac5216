"""The partition table maps a topic id or name and an index to a Partition. Immutable and counted. The publisher makes a
new table and hands it to each processor by mail; the old one is freed when all have taken the new one. Processors look
up without a lock or a count.

A topic is counted by itself, and so is each shard of the two indexes: a new table shares with the old one every topic
and every shard that did not change. Adding or removing a topic copies two shards, and a pointer to each other shard.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.log.partition cimport Partition

ctypedef struct Topic:
    int32_t refs          # atomic
    uint8_t topic_id[16]
    char *name            # not terminated; `name_size` bytes
    int32_t name_size
    int32_t count         # of `partitions`, by index
    Partition **partitions  # each counted; NULL where this node has none

# Some dozens of topics, open addressing.
ctypedef struct Shard:
    int32_t refs          # atomic
    int32_t mask          # places, less one; at least half of them are free
    int32_t count
    Topic **places        # each counted

ctypedef struct PartitionTable:
    int32_t refs          # atomic
    int32_t mask          # shards in each of the two indexes, less one
    int32_t count         # topics
    Shard **by_id         # each counted; NULL: empty
    Shard **by_name

cdef void table_release(PartitionTable *table) noexcept nogil
cdef Partition *table_find_id(const PartitionTable *table, const uint8_t *topic_id, int32_t index) noexcept nogil
cdef Partition *table_find_name(const PartitionTable *table, const uint8_t *topic, int32_t size,
                                int32_t index) noexcept nogil
# Whether the topic is known at all: UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION.
cdef bint table_knows_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil

cdef Topic *topic_new(const uint8_t *topic_id, const char *name, int32_t name_size, int32_t count) noexcept nogil
cdef void topic_release(Topic *topic) noexcept nogil
cdef Topic *table_topic_by_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil  # not counted
cdef Topic *table_topic_by_name(const PartitionTable *table, const uint8_t *name, int32_t size) noexcept nogil


cdef class Table:
    """Python's handle of one published table."""
    cdef PartitionTable *table
