"""Fetch sessions (KIP-227): the node keeps the partitions that a consumer fetches, so that requests and answers name
only changes.

The cache's lock guards the table of sessions and their times. Take it before a session's lock, and read no log under
it. The cache holds a reference to each session, and so does each fetch under way, so an evicted session stays valid for
its fetch.

The sessions of a cache together keep a bounded amount of memory; a client without room continues with full fetches.
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
    int32_t count
    int64_t partition_count
    int64_t evictions
    int64_t memory_bytes                 # the most memory for the partitions of all sessions
    int64_t used_bytes                   # memory of all sessions, as of their last fetch
    uint64_t hash_key[2]
    uint64_t random                      # state of the id generator; the owner of the cache seeds it
    FetchSession *buckets[256]
    FetchSession *unlinked               # to be released when the lock is free

# `seed`: three words, for the ids and for the hash.
cdef int sessions_init(FetchSessions *cache, int32_t slots, int64_t memory_bytes, const uint64_t *seed) noexcept nogil
cdef void sessions_close(FetchSessions *cache) noexcept nogil
# Returns 0 with a counted session, whose epoch it has advanced; FETCH_SESSION_ID_NOT_FOUND (also when the session has
# outgrown the memory, so that the client begins a new one); INVALID_FETCH_SESSION_EPOCH; or
# FETCH_SESSION_TOPIC_ID_ERROR when the client mixes names and ids (KIP-516).
cdef int16_t sessions_take(FetchSessions *cache, int32_t session_id, int32_t epoch, bint uses_topic_ids, int64_t now_ms,
                           FetchSession **out) noexcept nogil
# A counted session that is not in the cache yet.
cdef FetchSession *session_new(const FetchSessions *cache, bint uses_topic_ids) noexcept nogil
# Adds a filled session to the cache, and evicts another one where Kafka would. Returns the session's id, or 0 when the
# cache has no room.
cdef int32_t sessions_add(FetchSessions *cache, FetchSession *session, int64_t now_ms) noexcept nogil
cdef void sessions_remove(FetchSessions *cache, int32_t session_id) noexcept nogil


cdef class FetchSessionCache:
    """Owns the sessions of one node."""
    cdef FetchSessions cache
