"""Which partitions a request has named before. Kafka collects the partitions of a request in a map, so a partition that
is named twice is served once, with the values that were named last; serving it twice would let one request repeat the
same work thousands of times.
"""

from libc.stdint cimport int32_t, uint32_t

from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.schema.view cimport Arena

ctypedef struct NamedPlace:
    const Partition *partition   # NULL: a free place
    int32_t index

ctypedef struct Distinct:
    NamedPlace *places           # NULL for a request that can name nothing twice
    uint32_t mask
    int32_t count                # of partitions that were added

# For at most `count` partitions; its memory is the arena's. False when the arena is full.
cdef bint distinct_begin(Distinct *seen, Arena *arena, int32_t count) noexcept nogil
# The index that came with the partition the first time; `index` when this is the first time.
cdef int32_t distinct_add(Distinct *seen, const Partition *partition, int32_t index) noexcept nogil
