"""Fetch sessions (KIP-227): the node keeps the partitions that a consumer fetches, so that requests and answers name
only changes.

The cache's lock guards the table of sessions and their times; a session's lock guards its partitions. Take the cache's
lock first, and read no log under either. The cache holds a reference to each session, and so does each fetch under way,
so an evicted session stays valid for its fetch.

Clients choose the partitions of a session, so a keyed hash (SipHash-1-3) finds them. The sessions of a cache together
keep a bounded amount of memory; a client without room continues with full fetches.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkacore._fast.base.sync cimport Mutex

cdef enum:
    INITIAL_EPOCH = 0
    FINAL_EPOCH = -1
    SESSION_EVICTION_MS = 120000         # Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS

ctypedef struct SessionPartition:
    uint8_t topic_id[16]
    int32_t topic_size                   # of the name behind the struct; 0 in a session by topic ids
    int32_t index
    bint topic_was_known                 # a fetch of the session found its topic id
    int32_t max_bytes
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int64_t fetch_offset
    int64_t fetcher_log_start            # of the follower that fetches
    int64_t log_start_offset             # as last sent
    int64_t high_watermark               # as last sent; -1 makes the next answer name the partition
    SessionPartition *next               # in the order of fetching: a partition that returned data goes to the end
    SessionPartition *previous
    SessionPartition *chain              # of its hash bucket

ctypedef struct FetchSession:
    int32_t refs                         # atomic
    Mutex lock
    int32_t id
    int32_t epoch                        # the next request must carry it
    bint privileged                      # a follower's: no client's session takes its place
    bint uses_topic_ids                  # fetch version 13 or above
    int64_t created_ms                   # the cache's lock guards it and the next four
    int64_t used_ms
    int32_t cached_count                 # its partitions at the last fetch, for eviction
    int64_t cached_bytes                 # its bytes at the last fetch
    FetchSession *chain
    int32_t count
    int64_t bytes                        # its partitions; atomic
    uint64_t hash_key[2]                 # the cache's
    uint32_t bucket_mask
    SessionPartition **buckets
    SessionPartition *first
    SessionPartition *last

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
cdef void session_release(FetchSession *session) noexcept nogil

# The caller holds the session's lock for all of these. `topic` may be NULL in a session by ids; the name is copied.
cdef SessionPartition *session_find(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                    int32_t topic_size, int32_t index) noexcept nogil
cdef SessionPartition *session_put(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                   int32_t topic_size, int32_t index) noexcept nogil  # NULL when memory runs out
cdef void session_drop(FetchSession *session, SessionPartition *partition) noexcept nogil
cdef void session_move_last(FetchSession *session, SessionPartition *partition) noexcept nogil


cdef class FetchSessionCache:
    """Owns the sessions of one node."""
    cdef FetchSessions cache
