"""Implements the cache of fetch sessions (KIP-227), with the eviction rules of FetchSession.scala. fetch_session.pxd
has the contract.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kafkacore._fast.base.error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR, INVALID_FETCH_SESSION_EPOCH,
)
from kafkacore._fast.base.assertions cimport debug_assert
from kafkacore._fast.base.atomics cimport add32, load32, load64, store32
from kafkacore._fast.base.links cimport ListLink
from kafkacore._fast.base.lock_order cimport RANK_FETCH_SESSIONS
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_guards, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.log.partition cimport READ_LOG_END, WAIT_KINDS, Partition, ReadAsked, read_asked_init
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.readers cimport Changes, changes_count, readers_join, readers_tell
from kafkacore._fast.wait.park cimport WAKE_READY, WakeList
from kafkacore._fast.hot.session_partitions cimport (
    FetchSession, SessionPartition, session_create, session_drop, session_find, session_key, session_key_hash,
    session_move_last, session_of_order, session_put, session_release, sessions_alive,
)

cdef enum:
    MEMORY_BYTES = 256 << 20
    MAX_TOPIC = 249  # the length of Kafka's longest topic name; listings cut longer keys


cdef int sessions_init(FetchSessions *cache, int32_t slots, int64_t memory_bytes, const uint64_t *seed) noexcept nogil:
    memset(cache, 0, sizeof(FetchSessions))
    cache.slots = slots
    cache.memory_bytes = memory_bytes
    cache.random = seed[0]
    # The seed of the hash is independent of the seed for session ids, because clients see the session ids.
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
    return session_create(cache.hash_key, uses_topic_ids)


# --- the cache; the caller must hold its lock ---

cdef FetchSession **place_of(FetchSessions *cache, int32_t session_id) noexcept nogil:
    """Returns the address of the pointer to the session, or the end of the hash chain if the session does not exist."""
    cdef FetchSession **place = &cache.buckets[<uint32_t> session_id & 255]
    while place[0] != NULL and place[0].id != session_id:
        place = &place[0].chain
    return place


cdef void unlink_at(FetchSessions *cache, FetchSession **place) noexcept nogil:
    cdef FetchSession *session = place[0]
    place[0] = session.chain
    session.chain = cache.unlinked
    cache.unlinked = session
    cache.count -= 1
    cache.partition_count -= session.cached_count
    cache.used_bytes -= session.cached_bytes


cdef void unlock_and_release(FetchSessions *cache) noexcept nogil:
    """Unlocks the cache and releases the sessions that were unlinked. If this releases a session's last reference, the
    session stops watching all its partitions."""
    cdef FetchSession *session = cache.unlinked
    cdef FetchSession *rest
    cache.unlinked = NULL
    mutex_unlock(&cache.lock)
    while session != NULL:
        rest = session.chain
        session_release(session)
        session = rest


cdef int32_t next_id(FetchSessions *cache) noexcept nogil:
    """Returns a free id above zero. The id comes from splitmix64, so clients cannot guess it from the previous id."""
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
    """Evicts sessions until the cache has a slot and memory for the candidate. Returns False if this fails."""
    if candidate.bytes > cache.memory_bytes:
        return False
    while is_full(cache, candidate.bytes):
        if not evict(cache, candidate, now_ms):
            return False
    return True


cdef bint evict(FetchSessions *cache, FetchSession *candidate, int64_t now_ms) noexcept nogil:
    """Evicts the session that has been unused for the longest time, if this time exceeds SESSION_EVICTION_MS.
    Otherwise, if no slot is free, considers the least valuable session that the candidate may replace. Evicts this
    session if it is less valuable than the candidate. A follower's session is more valuable than any client's
    session."""
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
    """Returns whether the candidate may replace the session. Any candidate may replace a session that was created more
    than SESSION_EVICTION_MS ago. In addition, a follower's session may replace a younger session of a client."""
    if now_ms - session.created_ms > SESSION_EVICTION_MS:
        return True
    return candidate.privileged and not session.privileged


cdef int64_t value_of(const FetchSession *session) noexcept nogil:
    cdef int64_t count = max(session.cached_count, session.order.count if session.id == 0 else 0)
    return (<int64_t> session.privileged << 32) + count


cdef int32_t sessions_add(FetchSessions *cache, FetchSession *session, int64_t now_ms) noexcept nogil:
    cdef FetchSession **bucket
    cdef int32_t session_id = 0
    mutex_lock(&cache.lock)
    if make_room(cache, session, now_ms):
        session_id = session.id = next_id(cache)
        session.created_ms = session.used_ms = now_ms
        session.cached_count = session.order.count
        session.cached_bytes = session.bytes
        bucket = &cache.buckets[<uint32_t> session_id & 255]
        session.chain = bucket[0]
        bucket[0] = session
        add32(&session.refs, 1)
        cache.count += 1
        cache.partition_count += session.order.count
        cache.used_bytes += session.bytes
    unlock_and_release(cache)
    return session_id


cdef void sessions_remove(FetchSessions *cache, int32_t session_id) noexcept nogil:
    cdef FetchSession **place
    mutex_lock(&cache.lock)
    place = place_of(cache, session_id)
    if place[0] != NULL:
        unlink_at(cache, place)
    unlock_and_release(cache)


cdef bint grew_too_large(FetchSessions *cache, FetchSession *session) noexcept nogil:
    """Updates the cached size of the session and the memory used by the cache. Returns True if the cache then exceeds
    its memory, so that this session must end."""
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
    elif load32(&session.epoch) != epoch:
        error = INVALID_FETCH_SESSION_EPOCH
    elif (session.uses_topic_ids != 0) != (uses_topic_ids != 0):
        error = FETCH_SESSION_TOPIC_ID_ERROR
    else:
        store32(&session.epoch, 1 if epoch == 0x7FFFFFFF else epoch + 1)
        session.used_ms = now_ms
        cache.partition_count += session.order.count - session.cached_count
        session.cached_count = session.order.count
        add32(&session.refs, 1)
        out[0] = session
    unlock_and_release(cache)
    return error


cdef FetchSession *sessions_hold(FetchSessions *cache, int32_t session_id) noexcept nogil:
    """Returns the session with a reference for the caller, or NULL."""
    cdef FetchSession *session
    mutex_lock(&cache.lock)
    session = place_of(cache, session_id)[0]
    if session != NULL:
        add32(&session.refs, 1)
    unlock_and_release(cache)
    return session


# --- Python interface ---

def live() -> int:
    """Returns the number of sessions in this process. It is zero when every cache and every fetch has been freed."""
    return sessions_alive()


def partition_hash(seed, bytes key, int index) -> int:
    """Returns the hash of a partition in the sessions of a cache with this seed."""
    cdef uint64_t[2] words = [<uint64_t> (seed >> 64 & 0xFFFFFFFFFFFFFFFF), <uint64_t> (seed >> 128)]
    return session_key_hash(words, key, <int32_t> len(key), index)


ctypedef struct SessionChange:
    const uint8_t *key
    int32_t key_size
    int32_t index
    bint forget


cdef int apply_changes(FetchSession *session, const SessionChange *changes, int count) noexcept nogil:
    """Applies changes to a session, under the session's lock. Returns 0, or -1 if no memory is left."""
    cdef const SessionChange *change
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
        with nogil:
            sessions_close(&self.cache)

    def __len__(self):
        return self.locked(&self.cache.count)

    cdef int64_t locked(self, const int64_t *field) noexcept:
        """Reads a field of the cache under its lock, because processors write it."""
        cdef int64_t value
        with nogil:
            mutex_lock(&self.cache.lock)
            value = field[0]
            mutex_unlock(&self.cache.lock)
        return value

    @property
    def partition_count(self) -> int:
        """The value of the metric NumIncrementalFetchPartitionsCached."""
        return self.locked(&self.cache.partition_count)

    @property
    def used_bytes(self) -> int:
        """The bytes of all sessions, as counted at the last fetch of each session."""
        return self.locked(&self.cache.used_bytes)

    @property
    def evictions(self) -> int:
        """The number of evictions, for the metric IncrementalFetchSessionEvictionsPerSec."""
        return self.locked(&self.cache.evictions)

    def add(self, keys, bint uses_topic_ids, int64_t now_ms, bint privileged=False) -> int:
        """Adds a session. Each of `keys` is a partition: (topic id or name as bytes, partition index). Returns the id
        of the session, or 0 if there is no room. With `privileged`, it is a follower's session."""
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
            with nogil:
                session_release(session)
        return session_id

    def update(self, int session_id, int epoch, bint uses_topic_ids, int64_t now_ms, keys=(), forgotten=()) -> tuple:
        """Changes a session as an incremental fetch does. Returns a pair: Kafka's error code or 0, and the session's
        keys in the order of fetching."""
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
            with nogil:
                session_release(session)

    def returned(self, int session_id, bytes key, int index) -> None:
        """Moves a partition whose records were returned to the end of the order, so that no partition starves."""
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
    """Applies changes to a session. Each of `items` is (key, index, forget). The list keeps the keys alive while the
    thread holds the session's lock without the GIL."""
    cdef int count = <int> len(items)
    cdef SessionChange *changes = <SessionChange *> malloc(max(count, 1) * sizeof(SessionChange))
    cdef int failed
    cdef int i
    if changes == NULL:
        raise MemoryError("no memory for the changes of a fetch session")
    try:
        for i in range(count):
            key, index, forget = items[i]
            if session.uses_topic_ids and len(<bytes?> key) != 16:
                raise ValueError(f"a topic id has 16 bytes, not {len(key)}")
            changes[i] = SessionChange(<bytes?> key, <int32_t> len(key), index, forget)
        with nogil:
            failed = apply_changes(session, changes, count)
    finally:
        free(changes)
    if failed:
        raise MemoryError("no memory for a fetch session's partition")
    return 0


cdef list session_order(FetchSession *session):
    cdef SessionPartition *partition
    cdef ListLink *link
    cdef SessionChange *found = NULL
    cdef int count
    cdef int i = 0
    with nogil:
        mutex_lock(&session.lock)
        count = session.order.count
        found = <SessionChange *> malloc((count + 1) * (sizeof(SessionChange) + MAX_TOPIC))
        link = session.order.first
        while link != NULL and found != NULL:
            partition = session_of_order(link)
            found[i].key_size = 16 if session.uses_topic_ids else min(partition.topic_size, <int32_t> MAX_TOPIC)
            found[i].index = partition.index
            found[i].key = <uint8_t *> (found + count) + i * MAX_TOPIC
            memcpy(<void *> found[i].key, session_key(partition, session.uses_topic_ids), found[i].key_size)
            i += 1
            link = link.next
        mutex_unlock(&session.lock)
    if found == NULL:
        raise MemoryError("no memory to list a fetch session")
    try:
        return [(found[i].key[:found[i].key_size], found[i].index) for i in range(count)]
    finally:
        free(found)


# For tests of a race: a partition notifies its readers while a session stops watching the partition.

cdef class WatchedPartition:
    cdef FetchSession *session
    cdef SessionPartition *watched
    cdef int32_t is_told                 # atomic: the log of the partition is locked
    cdef readonly PartitionHandle handle

    def __cinit__(self, PartitionHandle handle not None):
        cdef uint64_t[2] words = [0, 0]
        cdef ReadAsked asked
        self.handle = handle
        self.session = session_create(words, False)
        if self.session == NULL:
            raise MemoryError
        with nogil:
            mutex_lock(&self.session.lock)
            self.watched = session_put(self.session, NULL, b"t", 1, 0)
            mutex_unlock(&self.session.lock)
        if self.watched == NULL:
            raise MemoryError
        read_asked_init(&asked, 0, 0, READ_LOG_END)
        asked.reader = &self.watched.change.in_readers
        with nogil:
            mutex_lock(&handle.partition.log.lock)
            readers_join(handle.partition, &asked, 0)
            mutex_unlock(&handle.partition.log.lock)

    def __dealloc__(self):
        if self.session != NULL:
            with nogil:
                session_release(self.session)

    def forget_while_told(self):
        with nogil:
            while not load32(&self.is_told):
                pass
            mutex_lock(&self.session.lock)
            session_drop(self.session, self.watched)
            mutex_unlock(&self.session.lock)

    def tell_while_forgotten(self):
        cdef Partition *p = self.handle.partition
        cdef int64_t reached[WAIT_KINDS]
        cdef WakeList wakes
        wakes.count = 0
        wakes.why = WAKE_READY
        memset(reached, 0, sizeof(reached))
        with nogil:
            mutex_lock(&p.log.lock)
            store32(&self.is_told, 1)
            while not has_left(self.watched):
                pass
            readers_tell(p, reached, True, &wakes)
            mutex_unlock(&p.log.lock)

    @property
    def marked(self) -> int:
        cdef int32_t count
        with nogil:
            count = changes_count(&self.session.changes)
        return count


cdef bint has_left(SessionPartition *partition) noexcept nogil:
    cdef Changes *changes = partition.change.changes
    cdef bint left
    mutex_lock(&changes.lock)
    left = partition.change.has_left
    mutex_unlock(&changes.lock)
    return left
