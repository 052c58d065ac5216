"""Fetch sessions (KIP-227): what a consumer fetches, kept between requests, so that it sends and hears only changes.

The cache's lock covers the table of sessions and their times; a session's own lock covers its partitions. Order: the
cache's lock first; neither is held across a read of a log. A session is counted: the cache owns one, each fetch under
way owns one, so an evicted session stays valid for the fetch that still holds it.

Clients choose what a session names, so its partitions are found by a keyed hash (SipHash-1-3), and the sessions of a
cache together keep no more memory than it was given: without room a client goes on with full fetches.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkacore._fast.base.sync cimport Mutex

cdef enum:
    INITIAL_EPOCH = 0
    FINAL_EPOCH = -1
    SESSION_EVICTION_MS = 120000         # Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS

ctypedef struct SessionPartition:
    uint8_t topic_id[16]
    int32_t topic_size                   # of the name that follows the struct; 0 when the session goes by topic ids
    int32_t index
    bint topic_was_known                 # its topic id, by some fetch of the session
    int32_t max_bytes
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int64_t fetch_offset
    int64_t log_start_offset             # as last told
    int64_t high_watermark               # as last told; -1 makes the next answer name the partition
    SessionPartition *next               # the order of fetching: what returned data goes to the end
    SessionPartition *previous
    SessionPartition *chain              # of its hash bucket

ctypedef struct FetchSession:
    int32_t refs                         # atomic
    Mutex lock
    int32_t id
    int32_t epoch                        # that the next request must carry
    bint uses_topic_ids                  # fetch version 13 or above
    int64_t created_ms                   # covered by the cache's lock, as the next four are
    int64_t used_ms
    int32_t cached_count                 # partitions when it was last looked at, for eviction
    int64_t cached_bytes                 # likewise
    FetchSession *chain
    int32_t count
    int64_t bytes                        # that its partitions take; atomic
    uint64_t hash_key[2]                 # its cache's
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
    int64_t memory_bytes                 # the most that its sessions' partitions may take
    int64_t used_bytes                   # that they take, as last looked at
    uint64_t hash_key[2]
    uint64_t random                      # state of the id generator; seeded by whoever makes the cache
    FetchSession *buckets[256]

# `seed`: three words, for the ids and for the hash.
cdef int sessions_init(FetchSessions *cache, int32_t slots, int64_t memory_bytes, const uint64_t *seed) noexcept nogil
cdef void sessions_close(FetchSessions *cache) noexcept nogil
# 0 and a counted session whose epoch is advanced; FETCH_SESSION_ID_NOT_FOUND (also for one that has grown beyond the
# memory there is: its client begins anew); INVALID_FETCH_SESSION_EPOCH;
# FETCH_SESSION_TOPIC_ID_ERROR when names and ids are mixed (KIP-516).
cdef int16_t sessions_take(FetchSessions *cache, int32_t session_id, int32_t epoch, bint uses_topic_ids, int64_t now_ms,
                           FetchSession **out) noexcept nogil
# A counted session of the next free id, not yet in the cache.
cdef FetchSession *session_new(const FetchSessions *cache, bint uses_topic_ids) noexcept nogil
# Puts a filled session into the cache, evicting another where Kafka would; its id, or 0 when there is no room.
cdef int32_t sessions_add(FetchSessions *cache, FetchSession *session, int64_t now_ms) noexcept nogil
cdef void sessions_remove(FetchSessions *cache, int32_t session_id) noexcept nogil
cdef void session_release(FetchSession *session) noexcept nogil

# All of these under the session's lock. `topic` may be NULL for a session by ids; the name is copied.
cdef SessionPartition *session_find(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                    int32_t topic_size, int32_t index) noexcept nogil
cdef SessionPartition *session_put(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                   int32_t topic_size, int32_t index) noexcept nogil  # NULL when memory is out
cdef void session_drop(FetchSession *session, SessionPartition *partition) noexcept nogil
cdef void session_move_last(FetchSession *session, SessionPartition *partition) noexcept nogil


cdef class FetchSessionCache:
    """Owns the sessions of one node."""
    cdef FetchSessions cache
