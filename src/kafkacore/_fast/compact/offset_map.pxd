"""A map from each key to the offset at which the key was last written, in bounded memory (Kafka's SkimpyOffsetMap). A
compaction keeps only the records at these offsets.

The map stores a hash of each key: 128 bits of SipHash-1-3. Each map has its own seed. If two keys had the same hash,
the map would treat them as one key, and the earlier record would be lost. With 10 million keys this happens once in
10^24 compactions. It would happen as rarely with MD5, which Apache Kafka uses and which also has 128 bits. But for MD5
anybody can construct two keys with the same hash. For SipHash this is impossible without the seed.

The upper bits of a hash choose the home slot of the key, where the search for the key begins. From there on, the slots
are ordered by hash (Amble and Knuth, "Ordered hash tables", 1974). So the search for a missing key ends early, and a
table that is 90% full is still fast.

Only one thread at a time may use a map.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    SLOT_BYTES = 24
    OFFSET_MAP_FULL = 1

ctypedef struct KeyHash:
    uint64_t order        # the part of the hash that orders the slots
    uint64_t rest

ctypedef struct OffsetSlot:
    KeyHash hash
    int64_t place         # the key's offset + 1; 0 for an empty slot

ctypedef struct OffsetMap:
    int64_t budget_bytes
    double load_factor
    uint64_t seed[2]
    OffsetSlot *slots     # NULL between compactions, so that an idle cleaner uses no memory
    int64_t homes
    # The number of slots: the home slots, and extra slots for keys that do not fit into the last home slots.
    int64_t room
    int64_t limit         # the map accepts at most this many keys
    int64_t count
    int64_t latest_offset  # the map covers all records up to this offset; -1 if it covers none

cdef void offset_map_init(OffsetMap *map, int64_t budget_bytes, double load_factor, uint64_t seed0,
                          uint64_t seed1) noexcept nogil
# Empties the map, and makes it large enough for `most_keys` keys if the memory budget allows that. Returns 0 or
# -ENOMEM.
cdef int offset_map_begin(OffsetMap *map, int64_t most_keys) noexcept nogil
cdef void offset_map_release(OffsetMap *map) noexcept nogil  # frees the slots

cdef void offset_map_hash(const OffsetMap *map, const uint8_t *key, size_t size, KeyHash *hash) noexcept nogil
cdef void offset_map_prefetch(const OffsetMap *map, const KeyHash *hash) noexcept nogil
# Sets the offset of a key. For each key, the caller must put its offsets in ascending order. Returns 0. If the map is
# full, returns OFFSET_MAP_FULL and changes nothing.
cdef int offset_map_put(OffsetMap *map, const KeyHash *hash, int64_t offset) noexcept nogil
# Returns the key's offset, or -1 if the map does not have the key.
cdef int64_t offset_map_get(const OffsetMap *map, const KeyHash *hash) noexcept nogil


cdef class KeyOffsets:
    cdef OffsetMap map
    cdef int held  # the number of compactions that use the map; the map keeps its memory until they have ended
    cdef int hash_key(self, key, KeyHash *hash) except -1
    cdef int check_free(self) except -1
