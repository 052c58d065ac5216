"""A fetch session (KIP-227): its partitions, in the order of fetching, and the partitions that have changed.

A session's lock guards its partitions. A thread that holds this lock may take the lock of a log. An unanswered Fetch
holds references to the session and to each `SessionPartition` that it reads, so neither is freed while the Fetch needs
it. If a partition is removed from the session in the meantime, its `is_dropped` is set.

A client could choose partitions whose hashes collide, so the hash table of the partitions uses a keyed hash
(SipHash-1-3).

A Fetch reads only partitions that are marked as changed (log/readers.pxd). These are the partitions in the request, the
partitions whose log or role has changed, and the partitions that the last Fetch could not finish (`is_settled` in
fetch_call.pyx). A Fetch that ends without an answer gives its partitions back with `session_return`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkacore._fast.base.links cimport LinkedList, ListLink
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.readers cimport Change, Changes

ctypedef struct SessionPartition:
    Change change                        # must be the first field
    ListLink in_order                    # the order of fetching; a partition whose records were sent moves to the end
    int32_t refs                         # atomic
    bint is_dropped
    const void *holder                   # the unanswered Fetch that took the partition last
    uint8_t topic_id[16]
    int32_t topic_size  # size of the topic name, which is stored after the struct; 0 in a session with topic ids
    int32_t index
    bint topic_was_known                 # a fetch of the session has found the topic id
    int32_t max_bytes
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int64_t fetch_offset
    int64_t fetcher_log_start            # the log start offset of the follower that fetches
    int64_t log_start_offset             # the log start offset in the last answer
    int64_t high_watermark               # as in the last answer; -1: the next answer must contain the partition
    SessionPartition *chain              # next in its hash bucket

# The sender of a Fetch, its isolation level and its version. If any of these fields differs from the previous Fetch of
# the session, the Fetch reads every partition of the session.
ctypedef struct SessionAsker:
    int32_t follower_id                  # -1 for a client
    int64_t follower_epoch
    int32_t isolation
    int32_t api_version

ctypedef struct FetchSession:
    int32_t refs                         # atomic
    Mutex lock
    int32_t id
    int32_t epoch                        # atomic; the next request must have this epoch
    # Whether a follower owns the session. A client's session can replace a follower's session only if no Fetch has used
    # the follower's session for SESSION_EVICTION_MS.
    bint privileged
    bint uses_topic_ids                  # fetch version 13 or above
    int64_t created_ms                   # the cache's lock guards this field and the next four
    int64_t used_ms
    int32_t cached_count                 # the number of partitions at the session's last fetch, for eviction
    int64_t cached_bytes                 # the value of `bytes` at that fetch
    FetchSession *chain
    LinkedList order                     # by `SessionPartition.in_order`
    int64_t bytes                        # the memory that its partitions use; atomic
    uint64_t hash_key[2]                 # a copy of the cache's key
    uint32_t bucket_mask
    SessionPartition **buckets
    SessionAsker asker
    Changes changes

# Returns a session with a reference for the caller, or NULL if no memory is left. `hash_key` has two random words.
cdef FetchSession *session_create(const uint64_t *hash_key, bint uses_topic_ids) noexcept nogil
# Releases a reference. When the last reference is released, the session takes locks to stop watching its partitions. So
# the caller must not hold a lock that ranks above the cache's lock (lock_order.pxd).
cdef void session_release(FetchSession *session) noexcept nogil
cdef uint64_t session_key_hash(const uint64_t *hash_key, const uint8_t *key, int32_t size, int32_t index) noexcept nogil
cdef const uint8_t *session_key(const SessionPartition *partition, bint by_id) noexcept nogil

# The caller of each of the following functions must hold the session's lock. `topic` may be NULL in a session with
# topic ids. The name is copied.
cdef SessionPartition *session_find(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                    int32_t topic_size, int32_t index) noexcept nogil
# Adds a partition and marks it as changed. Returns NULL if no memory is left.
cdef SessionPartition *session_put(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                   int32_t topic_size, int32_t index) noexcept nogil
cdef void session_drop(FetchSession *session, SessionPartition *partition) noexcept nogil
cdef void session_move_last(FetchSession *session, SessionPartition *partition) noexcept nogil
cdef SessionPartition *session_of_order(ListLink *link) noexcept nogil
cdef void session_mark_all(FetchSession *session) noexcept nogil
# Unmarks and returns the first marked partition, with a reference for the caller. Returns NULL if no partition is
# marked.
cdef SessionPartition *session_take(FetchSession *session) noexcept nogil
# Stops watching an earlier partition with the same name, unless that partition is `p`. Call this before you read `p`.
# `p` is NULL if the node has no partition with this name.
cdef void session_watch_only(SessionPartition *partition, const Partition *p) noexcept nogil

# Marks the partition again, as `changes_return` does, and releases the caller's reference.
cdef void session_return(SessionPartition *partition, bint first, int32_t state) noexcept nogil
cdef void session_partition_release(SessionPartition *partition) noexcept nogil

cdef int32_t sessions_alive() noexcept nogil  # the number of sessions in this process
