"""Implements offset_map.pxd."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport ENOMEM
from libc.string cimport memmove

from kafkacore._fast.base.keyed_hash cimport hash_128

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <sys/mman.h>

    static inline int64_t kc_home(uint64_t order, int64_t homes) {
        return (int64_t) (((unsigned __int128) order * (uint64_t) homes) >> 64);
    }
    static inline void kc_prefetch(const void *p) { __builtin_prefetch(p, 1); }
    /* Returns zeroed memory. Uses large pages if the system has them, because look-ups access random addresses. */
    static inline void *kc_map_memory(size_t size) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return NULL;
    #ifdef MADV_HUGEPAGE
        madvise(memory, size, MADV_HUGEPAGE);
    #endif
        return memory;
    }
    """
    int64_t home_of "kc_home"(uint64_t order, int64_t homes) noexcept
    void prefetch "kc_prefetch"(const void *p) noexcept
    void *map_memory "kc_map_memory"(size_t size) noexcept
    int munmap(void *memory, size_t size) noexcept

cdef enum:
    LEAST_SPILL = 16
    MOST_SPILL = 4096     # extra slots after the last home slot (the slot at which the search for a key begins)


cdef void offset_map_init(OffsetMap *map, int64_t budget_bytes, double load_factor, uint64_t seed0,
                          uint64_t seed1) noexcept nogil:
    map.budget_bytes = budget_bytes
    map.load_factor = load_factor
    map.seed[0] = seed0
    map.seed[1] = seed1
    map.slots = NULL
    map.homes = map.room = map.limit = map.count = 0
    map.latest_offset = -1


cdef int offset_map_begin(OffsetMap *map, int64_t most_keys) noexcept nogil:
    cdef int64_t most = map.budget_bytes // SLOT_BYTES
    cdef int64_t spill = min(max(most // 8, <int64_t> LEAST_SPILL), <int64_t> MOST_SPILL)
    cdef int64_t homes = max(most - spill, <int64_t> LEAST_SPILL)
    offset_map_release(map)
    if most_keys / map.load_factor < homes - 1:
        homes = <int64_t> (most_keys / map.load_factor) + 1
    map.slots = <OffsetSlot *> map_memory(<size_t> (homes + spill) * SLOT_BYTES)
    if map.slots == NULL:
        return -ENOMEM
    map.homes = homes
    map.room = homes + spill
    map.limit = max(<int64_t> (homes * map.load_factor), <int64_t> 1)
    map.count = 0
    map.latest_offset = -1
    return 0


cdef void offset_map_release(OffsetMap *map) noexcept nogil:
    if map.slots != NULL:
        munmap(map.slots, <size_t> map.room * SLOT_BYTES)
    map.slots = NULL
    map.room = 0


cdef void offset_map_hash(const OffsetMap *map, const uint8_t *key, size_t size, KeyHash *hash) noexcept nogil:
    hash_128(map.seed, key, size, &hash.order, &hash.rest)


cdef void offset_map_prefetch(const OffsetMap *map, const KeyHash *hash) noexcept nogil:
    prefetch(&map.slots[home_of(hash.order, map.homes)])


cdef int64_t find(const OffsetMap *map, const KeyHash *hash, bint *found) noexcept nogil:
    """Returns the slot that holds the hash. If no slot does, returns the slot where the hash belongs."""
    cdef const OffsetSlot *slots = map.slots
    cdef int64_t at = home_of(hash.order, map.homes)
    found[0] = False
    while at < map.room and slots[at].place != 0 and slots[at].hash.order < hash.order:
        at += 1
    while at < map.room and slots[at].place != 0 and slots[at].hash.order == hash.order:
        if slots[at].hash.rest == hash.rest:
            found[0] = True
            return at
        at += 1
    return at


cdef int offset_map_put(OffsetMap *map, const KeyHash *hash, int64_t offset) noexcept nogil:
    cdef bint found
    cdef int64_t at = find(map, hash, &found)
    cdef int64_t end = at
    if found:
        map.slots[at].place = offset + 1
        return 0
    if map.count >= map.limit:
        return OFFSET_MAP_FULL
    while end < map.room and map.slots[end].place != 0:
        end += 1
    if end >= map.room:
        return OFFSET_MAP_FULL
    if end > at:
        memmove(&map.slots[at + 1], &map.slots[at], <size_t> (end - at) * sizeof(OffsetSlot))
    map.slots[at].hash = hash[0]
    map.slots[at].place = offset + 1
    map.count += 1
    return 0


cdef int64_t offset_map_get(const OffsetMap *map, const KeyHash *hash) noexcept nogil:
    cdef bint found
    cdef int64_t at = find(map, hash, &found)
    return map.slots[at].place - 1 if found else -1


cdef class KeyOffsets:
    """An offset map, for cleaner threads and for tests. `seed` consists of 16 random bytes."""

    def __init__(self, int64_t budget_bytes, double load_factor, bytes seed not None):
        self.check_free()
        if len(seed) != 16 or not 0 < load_factor <= 1 or budget_bytes < 0:
            raise ValueError("the seed must have 16 bytes, the load factor must be above 0 and at most 1")
        offset_map_release(&self.map)
        offset_map_init(&self.map, budget_bytes, load_factor, int.from_bytes(seed[:8], "little"),
                        int.from_bytes(seed[8:], "little"))

    def __dealloc__(self):
        offset_map_release(&self.map)

    def begin(self, int64_t most_keys):
        """Empties the map and allocates the memory for `most_keys` keys, within the memory budget."""
        self.check_free()
        if offset_map_begin(&self.map, most_keys) < 0:
            raise MemoryError

    def release(self):
        """Frees the memory. `begin` allocates it again."""
        self.check_free()
        offset_map_release(&self.map)

    cdef int check_free(self) except -1:
        if self.held:
            raise ValueError("a compaction still uses the map; close the compaction first")
        return 0

    def put(self, key not None, int64_t offset):
        """Sets the offset of a key. Returns False if the map is full."""
        cdef KeyHash hash
        self.hash_key(key, &hash)
        return offset_map_put(&self.map, &hash, offset) == 0

    def get(self, key not None):
        """Returns the key's offset, or -1 if the map does not have the key."""
        cdef KeyHash hash
        self.hash_key(key, &hash)
        return offset_map_get(&self.map, &hash)

    cdef int hash_key(self, key, KeyHash *hash) except -1:
        cdef Py_buffer view
        if self.map.slots == NULL:
            raise ValueError("the map has no memory; call begin() first")
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        offset_map_hash(&self.map, <const uint8_t *> view.buf, <size_t> view.len, hash)
        PyBuffer_Release(&view)
        return 0

    def hash_of(self, key not None):
        """Returns the 128-bit hash that identifies a key."""
        cdef KeyHash hash
        self.hash_key(key, &hash)
        return hash.order, hash.rest

    def __len__(self):
        return self.map.count

    @property
    def limit(self):
        return self.map.limit

    @property
    def memory_bytes(self):
        return self.map.room * SLOT_BYTES

    @property
    def utilization(self):
        """The number of keys, divided by the number of home slots (Kafka's OffsetMap.utilization)."""
        return self.map.count / self.map.homes if self.map.homes else 0.0
