"""Finds partitions that a request contains twice. Kafka collects the partitions of a request in a map. So Kafka serves
such a partition only once, with the values that come last in the request. If we served each occurrence, one request
could repeat the same work thousands of times.
"""

from libc.stdint cimport int32_t, uint32_t

from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.schema.view cimport Arena

ctypedef struct NamedPlace:
    const Partition *partition   # NULL if this slot is free
    int32_t index

ctypedef struct Distinct:
    NamedPlace *places           # a hash table; NULL for a request that cannot name a partition twice
    uint32_t mask
    int32_t count                # the number of partitions that were added

# Prepares for at most `count` partitions. Takes the memory from the arena. Returns False if the arena is full.
cdef bint distinct_begin(Distinct *seen, Arena *arena, int32_t count) noexcept nogil
# Adds a partition with its index. If the partition is new, returns `index`. Otherwise, returns the index with which the
# partition was added.
cdef int32_t distinct_add(Distinct *seen, const Partition *partition, int32_t index) noexcept nogil
