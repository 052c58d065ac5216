"""Fetch sessions (KIP-227; eviction as in FetchSession.scala). Contract in fetch_session.pxd."""

from libc.stddef cimport size_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kafkacore._fast.base.error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR, INVALID_FETCH_SESSION_EPOCH,
)
from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add32, add64, load32, load64
from kafkacore._fast.base.keyed_hash cimport hash_word_and_bytes
from kafkacore._fast.base.lock_order cimport RANK_FETCH_SESSION, RANK_FETCH_SESSIONS
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_guards, mutex_init, mutex_lock, mutex_unlock

cdef enum:
    LEAST_BUCKETS = 8
    MEMORY_BYTES = 256 << 20
    MAX_TOPIC = 249  # Kafka's longest topic name; no partition has a longer key, and listings cut it

cdef int32_t live_sessions = 0  # atomic; tests compare it with zero


cdef int sessions_init(FetchSessions *cache, int32_t slots, int64_t memory_bytes, const uint64_t *seed) noexcept nogil:
    memset(cache, 0, sizeof(FetchSessions))
    cache.slots = slots
    cache.memory_bytes = memory_bytes
    cache.random = seed[0]
    # Independent of the seed of the ids, which clients see.
    cache.hash_key[0] = seed[1]
    cache.hash_key[1] = seed[2]
    cdef int error = mutex_init(&cache.lock, RANK_FETCH_SESSIONS)
    if error == 0:
        mutex_guards(&cache.lock, check_sessions, cache)
    return -error


cdef void check_sessions(const void *guarded) noexcept nogil:
    cdef const FetchSessions *cache = <const FetchSessions *> guarded
    cdef const FetchSession *session
    cdef int32_t count = 0
    cdef int64_t partitions = 0
    cdef int64_t kept_bytes = 0
    cdef int i
    for i in range(256):
        session = cache.buckets[i]
        while session != NULL:
            debug_assert((<uint32_t> session.id & 255) == <uint32_t> i, b"a session is in the bucket of its id")
            debug_assert(load32(&session.refs) > 0, b"the cache holds a reference to each of its sessions")
            count += 1
            partitions += session.cached_count
            kept_bytes += session.cached_bytes
            session = session.chain
    debug_assert(count == cache.count <= max(cache.slots, 0), b"the cache counts its sessions, within its slots")
    debug_assert(partitions == cache.partition_count, b"the cache counts the partitions of its sessions")
    debug_assert(kept_bytes == cache.used_bytes, b"the cache counts the bytes of its sessions")


cdef void check_session(const void *guarded) noexcept nogil:
    """Looks at the first partitions alone: a session may have a hundred thousand."""
    cdef const FetchSession *session = <const FetchSession *> guarded
    cdef const SessionPartition *partition = session.first
    cdef int32_t seen = 0
    debug_assert((session.first == NULL) == (session.count == 0) and (session.last == NULL) == (session.count == 0),
                 b"an empty session has neither a first nor a last partition")
    debug_assert(session.first == NULL or session.first.previous == NULL, b"nothing comes before the first partition")
    debug_assert(session.last == NULL or session.last.next == NULL, b"nothing comes after the last partition")
    while partition != NULL and seen < 32:
        seen += 1
        debug_assert(partition.next == NULL or partition.next.previous == partition,
                     b"the partitions of a session are linked in both directions")
        partition = partition.next
    debug_assert(seen <= session.count, b"a session counts its partitions")
    debug_assert(partition != NULL or seen == session.count, b"a session counts its partitions")


cdef void sessions_close(FetchSessions *cache) noexcept nogil:
    cdef FetchSession *session
    cdef FetchSession *rest
    cdef int i
    for i in range(256):
        session = cache.buckets[i]
        while session != NULL:
            rest = session.chain
            session_release(session)
            session = rest
        cache.buckets[i] = NULL
    cache.count = 0
    mutex_destroy(&cache.lock)


cdef FetchSession *session_new(const FetchSessions *cache, bint uses_topic_ids) noexcept nogil:
    cdef FetchSession *session = <FetchSession *> calloc(1, sizeof(FetchSession))
    if session == NULL:
        return NULL
    session.buckets = <SessionPartition **> calloc(LEAST_BUCKETS, sizeof(SessionPartition *))
    if session.buckets == NULL:
        free(session)
        return NULL
    session.bucket_mask = LEAST_BUCKETS - 1
    session.bytes = sizeof(FetchSession) + LEAST_BUCKETS * sizeof(SessionPartition *)
    session.hash_key[0] = cache.hash_key[0]
    session.hash_key[1] = cache.hash_key[1]
    session.refs = 1
    session.epoch = 1
    session.uses_topic_ids = uses_topic_ids
    mutex_init(&session.lock, RANK_FETCH_SESSION)
    mutex_guards(&session.lock, check_session, session)
    add32(&live_sessions, 1)
    return session


cdef void session_release(FetchSession *session) noexcept nogil:
    cdef SessionPartition *partition
    cdef SessionPartition *rest
    if add32(&session.refs, -1) != 0:
        return
    partition = session.first
    while partition != NULL:
        rest = partition.next
        free(partition)
        partition = rest
    free(session.buckets)
    mutex_destroy(&session.lock)
    free(session)
    add32(&live_sessions, -1)


# --- the cache; the caller holds its lock ---

cdef FetchSession **place_of(FetchSessions *cache, int32_t session_id) noexcept nogil:
    """The place of the pointer to the session, or the end of its chain."""
    cdef FetchSession **place = &cache.buckets[<uint32_t> session_id & 255]
    while place[0] != NULL and place[0].id != session_id:
        place = &place[0].chain
    return place


cdef void unlink_at(FetchSessions *cache, FetchSession **place) noexcept nogil:
    cdef FetchSession *session = place[0]
    place[0] = session.chain
    session.chain = NULL
    cache.count -= 1
    cache.partition_count -= session.cached_count
    cache.used_bytes -= session.cached_bytes
    session_release(session)


cdef int32_t next_id(FetchSessions *cache) noexcept nogil:
    """A free id above zero. Clients cannot guess it from the last one (splitmix64)."""
    cdef uint64_t z
    cdef int32_t session_id
    while True:
        cache.random += <uint64_t> 0x9E3779B97F4A7C15u
        z = cache.random
        z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9u
        z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBu
        session_id = <int32_t> ((z ^ (z >> 31)) & 0x7FFFFFFF)
        if session_id != 0 and place_of(cache, session_id)[0] == NULL:
            return session_id


cdef bint is_full(const FetchSessions *cache, int64_t bytes) noexcept nogil:
    return cache.count >= cache.slots or cache.used_bytes + bytes > cache.memory_bytes


cdef bint make_room(FetchSessions *cache, FetchSession *candidate, int64_t now_ms) noexcept nogil:
    """Evicts sessions until there is a place and memory for one more."""
    if candidate.bytes > cache.memory_bytes:
        return False
    while is_full(cache, candidate.bytes):
        if not evict(cache, candidate, now_ms):
            return False
    return True


cdef bint evict(FetchSessions *cache, FetchSession *candidate, int64_t now_ms) noexcept nogil:
    """Evicts the stalest session if it is stale enough; else, when places are out, the least valuable session that the
    candidate may replace, if it is worth less. A follower's session is worth more than each client's."""
    cdef FetchSession **stalest = NULL
    cdef FetchSession **least = NULL
    cdef FetchSession **place
    cdef int i
    if cache.count == 0:
        return False
    for i in range(256):
        place = &cache.buckets[i]
        while place[0] != NULL:
            if stalest == NULL or place[0].used_ms < stalest[0].used_ms:
                stalest = place
            if may_replace(candidate, place[0], now_ms) and (least == NULL or value_of(place[0]) < value_of(least[0])):
                least = place
            place = &place[0].chain
    if now_ms - stalest[0].used_ms > SESSION_EVICTION_MS:
        place = stalest
    elif cache.count >= cache.slots and least != NULL and value_of(least[0]) < value_of(candidate):
        place = least
    else:
        return False
    unlink_at(cache, place)
    cache.evictions += 1
    return True


cdef bint may_replace(const FetchSession *candidate, const FetchSession *session, int64_t now_ms) noexcept nogil:
    """A settled session gives way to any other; one that is not settled yet only to a follower's."""
    if now_ms - session.created_ms > SESSION_EVICTION_MS:
        return True
    return candidate.privileged and not session.privileged


cdef int64_t value_of(const FetchSession *session) noexcept nogil:
    cdef int64_t count = max(session.cached_count, session.count if session.id == 0 else 0)
    return (<int64_t> session.privileged << 32) + count


cdef int32_t sessions_add(FetchSessions *cache, FetchSession *session, int64_t now_ms) noexcept nogil:
    cdef FetchSession **bucket
    cdef int32_t session_id = 0
    mutex_lock(&cache.lock)
    if make_room(cache, session, now_ms):
        session_id = session.id = next_id(cache)
        session.created_ms = session.used_ms = now_ms
        session.cached_count = session.count
        session.cached_bytes = session.bytes
        bucket = &cache.buckets[<uint32_t> session_id & 255]
        session.chain = bucket[0]
        bucket[0] = session
        add32(&session.refs, 1)
        cache.count += 1
        cache.partition_count += session.count
        cache.used_bytes += session.bytes
    mutex_unlock(&cache.lock)
    return session_id


cdef void sessions_remove(FetchSessions *cache, int32_t session_id) noexcept nogil:
    cdef FetchSession **place
    mutex_lock(&cache.lock)
    place = place_of(cache, session_id)
    if place[0] != NULL:
        unlink_at(cache, place)
    mutex_unlock(&cache.lock)


cdef bint grew_too_large(FetchSessions *cache, FetchSession *session) noexcept nogil:
    """Updates the bytes of the session. True: the cache is over its memory, and this session must end."""
    cdef int64_t grown_bytes = load64(&session.bytes) - session.cached_bytes
    session.cached_bytes += grown_bytes
    cache.used_bytes += grown_bytes
    return grown_bytes > 0 and cache.used_bytes > cache.memory_bytes


cdef int16_t sessions_take(FetchSessions *cache, int32_t session_id, int32_t epoch, bint uses_topic_ids, int64_t now_ms,
                           FetchSession **out) noexcept nogil:
    cdef FetchSession **place
    cdef FetchSession *session
    cdef int16_t error = 0
    out[0] = NULL
    mutex_lock(&cache.lock)
    place = place_of(cache, session_id)
    session = place[0]
    if session != NULL and grew_too_large(cache, session):
        unlink_at(cache, place)
        session = NULL
    if session == NULL:
        error = FETCH_SESSION_ID_NOT_FOUND
    elif session.epoch != epoch:
        error = INVALID_FETCH_SESSION_EPOCH
    elif (session.uses_topic_ids != 0) != (uses_topic_ids != 0):
        error = FETCH_SESSION_TOPIC_ID_ERROR
    else:
        session.epoch = 1 if epoch == 0x7FFFFFFF else epoch + 1
        session.used_ms = now_ms
        cache.partition_count += session.count - session.cached_count
        session.cached_count = session.count
        add32(&session.refs, 1)
        out[0] = session
    mutex_unlock(&cache.lock)
    return error


cdef FetchSession *sessions_hold(FetchSessions *cache, int32_t session_id) noexcept nogil:
    """The counted session, or NULL."""
    cdef FetchSession *session
    mutex_lock(&cache.lock)
    session = place_of(cache, session_id)[0]
    if session != NULL:
        add32(&session.refs, 1)
    mutex_unlock(&cache.lock)
    return session


# --- the partitions of a session; the caller holds its lock ---

cdef inline uint64_t key_hash(const uint64_t *hash_key, const uint8_t *key, int32_t size, int32_t index) noexcept nogil:
    return hash_word_and_bytes(hash_key, <uint32_t> index, key, <size_t> size)


cdef inline const uint8_t *name_of(const SessionPartition *partition) noexcept nogil:
    return <const uint8_t *> (partition + 1)


cdef inline const uint8_t *key_of(const SessionPartition *partition, bint by_id) noexcept nogil:
    if by_id:
        return partition.topic_id
    return name_of(partition)


cdef SessionPartition **partition_place(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                        int32_t topic_size, int32_t index) noexcept nogil:
    cdef bint by_id = session.uses_topic_ids
    cdef const uint8_t *key = topic_id if by_id else topic
    cdef int32_t size = 16 if by_id else topic_size
    cdef uint64_t found = key_hash(session.hash_key, key, size, index)
    cdef SessionPartition **place = &session.buckets[found & session.bucket_mask]
    cdef const SessionPartition *at
    while place[0] != NULL:
        at = place[0]
        if at.index == index and (by_id or at.topic_size == size) and (
                memcmp(key_of(at, by_id), key, size) == 0):
            return place
        place = &place[0].chain
    return place


cdef SessionPartition *session_find(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                    int32_t topic_size, int32_t index) noexcept nogil:
    return partition_place(session, topic_id, topic, topic_size, index)[0]


cdef bint grow(FetchSession *session) noexcept nogil:
    cdef uint32_t mask = (session.bucket_mask + 1) * 4 - 1
    cdef SessionPartition **buckets = <SessionPartition **> calloc(mask + 1, sizeof(SessionPartition *))
    cdef SessionPartition *partition = session.first
    cdef SessionPartition **bucket
    if buckets == NULL:
        return False
    while partition != NULL:
        if session.uses_topic_ids:
            bucket = &buckets[key_hash(session.hash_key, partition.topic_id, 16, partition.index) & mask]
        else:
            bucket = &buckets[key_hash(session.hash_key, name_of(partition), partition.topic_size, partition.index)
                              & mask]
        partition.chain = bucket[0]
        bucket[0] = partition
        partition = partition.next
    free(session.buckets)
    add64(&session.bytes, <int64_t> (mask - session.bucket_mask) * <int64_t> sizeof(SessionPartition *))
    session.buckets = buckets
    session.bucket_mask = mask
    return True


cdef void link_last(FetchSession *session, SessionPartition *partition) noexcept nogil:
    partition.next = NULL
    partition.previous = session.last
    if session.last != NULL:
        session.last.next = partition
    else:
        session.first = partition
    session.last = partition


cdef void unlink(FetchSession *session, SessionPartition *partition) noexcept nogil:
    if partition.previous != NULL:
        partition.previous.next = partition.next
    else:
        session.first = partition.next
    if partition.next != NULL:
        partition.next.previous = partition.previous
    else:
        session.last = partition.previous


cdef SessionPartition *session_put(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                   int32_t topic_size, int32_t index) noexcept nogil:
    cdef SessionPartition **place = partition_place(session, topic_id, topic, topic_size, index)
    cdef SessionPartition *partition = place[0]
    if partition != NULL:
        return partition
    if <uint32_t> session.count > session.bucket_mask * 2:
        grow(session)  # without memory the chains only grow longer
        place = partition_place(session, topic_id, topic, topic_size, index)
    if session.uses_topic_ids:
        topic_size = 0
    partition = <SessionPartition *> calloc(1, sizeof(SessionPartition) + topic_size)
    if partition == NULL:
        return NULL
    if topic_id != NULL:
        memcpy(partition.topic_id, topic_id, 16)
    if topic_size:
        memcpy(<uint8_t *> (partition + 1), topic, topic_size)
    partition.topic_size = topic_size
    partition.index = index
    partition.high_watermark = -1
    partition.log_start_offset = -1
    place[0] = partition
    link_last(session, partition)
    session.count += 1
    add64(&session.bytes, <int64_t> sizeof(SessionPartition) + topic_size)
    return partition


cdef void session_drop(FetchSession *session, SessionPartition *partition) noexcept nogil:
    cdef SessionPartition **place = partition_place(session, partition.topic_id, name_of(partition),
                                                    partition.topic_size, partition.index)
    place[0] = partition.chain
    unlink(session, partition)
    session.count -= 1
    add64(&session.bytes, -(<int64_t> sizeof(SessionPartition) + partition.topic_size))
    free(partition)


cdef void session_move_last(FetchSession *session, SessionPartition *partition) noexcept nogil:
    if session.last != partition:
        unlink(session, partition)
        link_last(session, partition)


# --- Python face ---

def live() -> int:
    """The number of sessions in this process; zero when every cache and fetch is gone."""
    return load32(&live_sessions)


def partition_hash(seed, bytes key, int index) -> int:
    """The hash by which a session of a cache with this seed finds a partition."""
    cdef uint64_t[2] words = [<uint64_t> (seed >> 64 & 0xFFFFFFFFFFFFFFFF), <uint64_t> (seed >> 128)]
    return key_hash(words, key, <int32_t> len(key), index)


ctypedef struct Change:
    const uint8_t *key
    int32_t key_size
    int32_t index
    bint forget


cdef int apply_changes(FetchSession *session, const Change *changes, int count) noexcept nogil:
    """0, or -1 when memory runs out. Takes the session's lock."""
    cdef const Change *change
    cdef SessionPartition *partition
    cdef int i
    cdef int failed = 0
    mutex_lock(&session.lock)
    for i in range(count):
        change = &changes[i]
        if not change.forget:
            partition = session_put(session, change.key, change.key, change.key_size, change.index)
            failed |= partition == NULL
        else:
            partition = session_find(session, change.key, change.key, change.key_size, change.index)
            if partition != NULL:
                session_drop(session, partition)
    mutex_unlock(&session.lock)
    return -failed


cdef class FetchSessionCache:

    def __init__(self, int slots=1000, seed=0, int64_t memory_bytes=MEMORY_BYTES):
        if slots < 0:
            raise ValueError(f"max.incremental.fetch.session.cache.slots must be at least 0, not {slots}")

    def __cinit__(self, int slots=1000, seed=0, int64_t memory_bytes=MEMORY_BYTES):
        cdef uint64_t words[3]
        cdef int i
        for i in range(3):
            words[i] = <uint64_t> (seed >> 64 * i & 0xFFFFFFFFFFFFFFFF)
        if sessions_init(&self.cache, slots, memory_bytes, words) != 0:
            raise MemoryError("no lock for the fetch session cache")

    def __dealloc__(self):
        sessions_close(&self.cache)

    def __len__(self):
        return self.cache.count

    @property
    def partition_count(self) -> int:
        """NumIncrementalFetchPartitionsCached."""
        return self.cache.partition_count

    @property
    def used_bytes(self) -> int:
        """Bytes of all sessions, at their last fetch."""
        return self.cache.used_bytes

    @property
    def evictions(self) -> int:
        """The count behind IncrementalFetchSessionEvictionsPerSec."""
        return self.cache.evictions

    def add(self, keys, bint uses_topic_ids, int64_t now_ms, bint privileged=False) -> int:
        """Adds a session of `keys`: (topic id or name as bytes, partition index). Its id, or 0 without room.
        `privileged`: a follower's."""
        cdef FetchSession *session = session_new(&self.cache, uses_topic_ids)
        cdef int32_t session_id
        if session == NULL:
            raise MemoryError("no memory for a fetch session")
        try:
            change_session(session, [(key, index, False) for key, index in keys])
            session.privileged = privileged
            with nogil:
                session_id = sessions_add(&self.cache, session, now_ms)
        finally:
            session_release(session)
        return session_id

    def update(self, int session_id, int epoch, bint uses_topic_ids, int64_t now_ms, keys=(), forgotten=()) -> tuple:
        """Changes a session as an incremental fetch does: (Kafka's error code or 0, its keys in fetch order)."""
        cdef FetchSession *session
        cdef int16_t error
        with nogil:
            error = sessions_take(&self.cache, session_id, epoch, uses_topic_ids, now_ms, &session)
        if error:
            return error, []
        try:
            change_session(session, [(key, index, False) for key, index in keys])
            change_session(session, [(key, index, True) for key, index in forgotten])
            return 0, session_order(session)
        finally:
            session_release(session)

    def returned(self, int session_id, bytes key, int index) -> None:
        """Moves a partition that returned data to the end of the order, so that no partition starves."""
        cdef FetchSession *session
        cdef SessionPartition *partition
        cdef const uint8_t *data = key
        cdef int32_t size = <int32_t> len(key)
        with nogil:
            session = sessions_hold(&self.cache, session_id)
            if session != NULL:
                mutex_lock(&session.lock)
                partition = session_find(session, data, data, size, index)
                if partition != NULL:
                    session_move_last(session, partition)
                mutex_unlock(&session.lock)
                session_release(session)

    def remove(self, int session_id) -> None:
        with nogil:
            sessions_remove(&self.cache, session_id)


cdef int change_session(FetchSession *session, list items) except -1:
    """`items`: (key, index, forget). The list keeps the keys alive while the lock is held without the GIL."""
    cdef int count = <int> len(items)
    cdef Change *changes = <Change *> malloc(max(count, 1) * sizeof(Change))
    cdef int failed
    cdef int i
    if changes == NULL:
        raise MemoryError("no memory for the changes of a fetch session")
    try:
        for i in range(count):
            key, index, forget = items[i]
            if session.uses_topic_ids and len(<bytes?> key) != 16:
                raise ValueError(f"a topic id has 16 bytes, not {len(key)}")
            changes[i] = Change(<bytes?> key, <int32_t> len(key), index, forget)
        with nogil:
            failed = apply_changes(session, changes, count)
    finally:
        free(changes)
    if failed:
        raise MemoryError("no memory for a fetch session's partition")
    return 0


cdef list session_order(FetchSession *session):
    cdef SessionPartition *partition
    cdef Change *found = NULL
    cdef int count
    cdef int i = 0
    with nogil:
        mutex_lock(&session.lock)
        count = session.count
        found = <Change *> malloc((count + 1) * (sizeof(Change) + MAX_TOPIC))
        partition = session.first
        while partition != NULL and found != NULL:
            found[i].key_size = 16 if session.uses_topic_ids else min(partition.topic_size, <int32_t> MAX_TOPIC)
            found[i].index = partition.index
            found[i].key = <uint8_t *> (found + count) + i * MAX_TOPIC
            memcpy(<void *> found[i].key, key_of(partition, session.uses_topic_ids), found[i].key_size)
            i += 1
            partition = partition.next
        mutex_unlock(&session.lock)
    if found == NULL:
        raise MemoryError("no memory to list a fetch session")
    try:
        return [(found[i].key[:found[i].key_size], found[i].index) for i in range(count)]
    finally:
        free(found)
