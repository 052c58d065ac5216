"""Finds partitions that a request names twice. Kafka collects the partitions of a request in a map, so it serves such a
partition once, with the last values. To serve it twice would let one request repeat the same work thousands of times.
"""

from libc.stdint cimport int32_t, uint32_t

from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.schema.view cimport Arena

ctypedef struct NamedPlace:
    const Partition *partition   # NULL: a free place
    int32_t index

ctypedef struct Distinct:
    NamedPlace *places           # NULL for a request that cannot name a partition twice
    uint32_t mask
    int32_t count                # of partitions that were added

# For at most `count` partitions; its memory is the arena's. False when the arena is full.
cdef bint distinct_begin(Distinct *seen, Arena *arena, int32_t count) noexcept nogil
# Returns the index that came with the partition when it was first added; `index` if it is new.
cdef int32_t distinct_add(Distinct *seen, const Partition *partition, int32_t index) noexcept nogil
