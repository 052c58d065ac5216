"""The cache of fetch sessions (KIP-227). In a session, the node remembers the partitions that a consumer or a follower
fetches, so that requests and answers contain only changes.

The cache's lock guards the table of sessions and the times in each session. Take this lock before a session's lock. Do
not read a log while you hold the cache's lock. The cache holds a reference to each session. Each unanswered Fetch also
holds a reference to its session, so the session stays valid for this Fetch even if the cache evicts it.

The memory of all sessions of a cache together is bounded. If there is no room for a client's session, the client
continues with full fetches.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.hot.session_partitions cimport FetchSession

cdef enum:
    INITIAL_EPOCH = 0
    FINAL_EPOCH = -1
    SESSION_EVICTION_MS = 120000         # Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS

ctypedef struct FetchSessions:
    Mutex lock
    int32_t slots                        # max.incremental.fetch.session.cache.slots
    int64_t count
    int64_t partition_count
    int64_t evictions
    int64_t memory_bytes                 # limit for the partitions of all sessions
    int64_t used_bytes                   # bytes of all sessions; a session is counted again at each of its fetches
    uint64_t hash_key[2]
    uint64_t random                      # the state of the id generator, which the owner of the cache seeds
    FetchSession *buckets[256]
    FetchSession *unlinked               # sessions to release after the lock is unlocked

# Initialises a cache. `seed` has three words: one for the session ids and two for the hash.
cdef int sessions_init(FetchSessions *cache, int32_t slots, int64_t memory_bytes, const uint64_t *seed) noexcept nogil
cdef void sessions_close(FetchSessions *cache) noexcept nogil
# Finds the session of a request, advances the session's epoch, stores the session in `out` with a reference for the
# caller, and returns 0. Returns FETCH_SESSION_ID_NOT_FOUND if there is no such session. Returns the same error if the
# session has outgrown the memory of the cache. Then the client begins a new session. Returns
# INVALID_FETCH_SESSION_EPOCH for an unexpected epoch. Returns FETCH_SESSION_TOPIC_ID_ERROR if the client mixes topic
# names and topic ids (KIP-516).
cdef int16_t sessions_take(FetchSessions *cache, int32_t session_id, int32_t epoch, bint uses_topic_ids, int64_t now_ms,
                           FetchSession **out) noexcept nogil
# Returns a new session with a reference for the caller. The session is not in the cache yet.
cdef FetchSession *session_new(const FetchSessions *cache, bint uses_topic_ids) noexcept nogil
# Adds a filled session to the cache. Evicts another session if Kafka would evict it. Returns the id of the new session,
# or 0 if the cache has no room.
cdef int32_t sessions_add(FetchSessions *cache, FetchSession *session, int64_t now_ms) noexcept nogil
cdef void sessions_remove(FetchSessions *cache, int32_t session_id) noexcept nogil


cdef class FetchSessionCache:
    """Owns the sessions of one node."""
    cdef FetchSessions cache
    cdef int64_t locked(self, const int64_t *field) noexcept
