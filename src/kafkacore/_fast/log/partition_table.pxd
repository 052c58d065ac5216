"""The partition table maps a topic id or name, and a partition index, to a `Partition`. A table is immutable and
reference-counted. When metadata changes, Python creates a new table and publishes it in place of the old one
(`NativePlane.publish_table` in plane.pxd). The plane frees the old table when no processor (a thread that serves
connections) can still be reading it. So processors look up partitions without a lock or a reference.

A table has two hash indexes, by topic id and by name, and each index consists of shards. Each topic has its own
reference count, and so has each shard. A new table shares all unchanged topics and shards with the old one. To add or
remove a topic, Python copies one shard of each index, and the pointers to all other shards.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.log.partition cimport Partition

ctypedef struct Topic:
    int32_t refs          # atomic
    uint8_t topic_id[16]
    char *name            # `name_size` bytes, without a terminating zero
    int32_t name_size
    int32_t count         # the number of `partitions`, which are ordered by partition index
    Partition **partitions  # holds a reference to each; NULL where this node has no replica

# A part of an index: a hash table with open addressing, for a few dozen topics.
ctypedef struct Shard:
    int32_t refs          # atomic
    int32_t mask          # the number of places, less one; at least half of the places are free
    int32_t count
    Topic **places        # holds a reference to each topic

ctypedef struct PartitionTable:
    int32_t refs          # atomic
    int32_t mask          # the number of shards in each of the two indexes, less one
    int32_t count         # the number of topics
    Shard **by_id         # holds a reference to each shard; NULL for an empty shard
    Shard **by_name

cdef void table_release(PartitionTable *table) noexcept nogil
cdef Partition *table_find_id(const PartitionTable *table, const uint8_t *topic_id, int32_t index) noexcept nogil
cdef Partition *table_find_name(const PartitionTable *table, const uint8_t *topic, int32_t size,
                                int32_t index) noexcept nogil
# Returns whether the table has the topic at all. If it does not, a request gets UNKNOWN_TOPIC_ID.
cdef bint table_knows_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil

cdef Topic *topic_new(const uint8_t *topic_id, const char *name, int32_t name_size, int32_t count) noexcept nogil
cdef void topic_release(Topic *topic) noexcept nogil
# Returns the topic without a new reference.
cdef Topic *table_topic_by_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil
cdef Topic *table_topic_by_name(const PartitionTable *table, const uint8_t *name, int32_t size) noexcept nogil


cdef class Table:
    """The Python handle of one published table."""
    cdef PartitionTable *table
