"""Notes which partitions a request has contained so far, in a hash table with open addressing. The key is the
partition's address in memory, which clients cannot choose.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t

from kafkacore._fast.schema.view cimport arena_alloc


cdef bint distinct_begin(Distinct *seen, Arena *arena, int32_t count) noexcept nogil:
    seen.places = NULL
    seen.mask = 3
    seen.count = 0
    if count < 2:
        return True
    while seen.mask < 2 * <uint32_t> count:
        seen.mask = 2 * seen.mask + 1
    seen.places = <NamedPlace *> arena_alloc(arena, (<size_t> seen.mask + 1) * sizeof(NamedPlace))
    return seen.places != NULL


cdef int32_t distinct_add(Distinct *seen, const Partition *partition, int32_t index) noexcept nogil:
    cdef uint32_t at
    if seen.places == NULL:
        seen.count += 1
        return index
    at = <uint32_t> ((<uint64_t> <size_t> partition * <uint64_t> 0x9E3779B97F4A7C15u) >> 32)
    while seen.places[at & seen.mask].partition != NULL:
        if seen.places[at & seen.mask].partition == partition:
            return seen.places[at & seen.mask].index
        at += 1
    seen.places[at & seen.mask].partition = partition
    seen.places[at & seen.mask].index = index
    seen.count += 1
    return index
