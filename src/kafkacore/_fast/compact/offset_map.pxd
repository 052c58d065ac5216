"""The offset at which each key was last written, in bounded memory (Kafka's SkimpyOffsetMap). A compaction keeps only
these records.

The map holds 128 bits of SipHash-1-3 for each key, under a seed of its own. If two keys shared them, the map would take
them for one and the earlier record would be lost. With 10 million keys this happens once in 10^24 compactions, as with
the 128 bits of MD5 that Apache Kafka uses. Unlike with MD5, nobody can construct two such keys without the seed.

The slots are ordered by hash, from the home slot that the upper bits of a hash choose (Amble and Knuth, "Ordered hash
tables", 1974): a look-up for a missing key ends early, and a table that is 90% full is still quick.

One thread at a time.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    SLOT_BYTES = 24
    OFFSET_MAP_FULL = 1

ctypedef struct KeyHash:
    uint64_t order        # the part of the hash by which slots are ordered
    uint64_t rest

ctypedef struct OffsetSlot:
    KeyHash hash
    int64_t place         # offset + 1; 0: empty

ctypedef struct OffsetMap:
    int64_t budget_bytes
    double load_factor
    uint64_t seed[2]
    OffsetSlot *slots     # NULL between uses: an idle cleaner has no memory
    int64_t homes
    int64_t room          # homes, and what the last of them may spill into
    int64_t limit         # keys
    int64_t count
    int64_t latest_offset  # everything up to it is in the map; -1 when nothing is

cdef void offset_map_init(OffsetMap *map, int64_t budget_bytes, double load_factor, uint64_t seed0,
                          uint64_t seed1) noexcept nogil
# Makes the map empty, and large enough for `most_keys` where the budget allows. 0 or -ENOMEM.
cdef int offset_map_begin(OffsetMap *map, int64_t most_keys) noexcept nogil
cdef void offset_map_release(OffsetMap *map) noexcept nogil  # frees its memory

cdef void offset_map_hash(const OffsetMap *map, const uint8_t *key, size_t size, KeyHash *hash) noexcept nogil
cdef void offset_map_prefetch(const OffsetMap *map, const KeyHash *hash) noexcept nogil
# 0, or OFFSET_MAP_FULL and nothing has changed. The caller puts a key's offsets in ascending order.
cdef int offset_map_put(OffsetMap *map, const KeyHash *hash, int64_t offset) noexcept nogil
cdef int64_t offset_map_get(const OffsetMap *map, const KeyHash *hash) noexcept nogil  # -1: not there


cdef class KeyOffsets:
    cdef OffsetMap map
    cdef int held  # how many compactions use the map; its memory stays until they end
    cdef int hash_key(self, key, KeyHash *hash) except -1
    cdef int check_free(self) except -1
