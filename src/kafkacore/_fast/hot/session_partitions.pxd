"""One fetch session (KIP-227): its partitions, in the order of fetching, and which of them changed.

A session's lock guards its partitions; a lock of a log may be taken under it. A Fetch under way counts the session, and
each of its partitions that it looks at. So neither goes while the Fetch needs it. One that was dropped meanwhile is
marked `is_dropped`.

Clients choose the partitions of a session, so a keyed hash (SipHash-1-3) finds them.

A Fetch looks only at partitions that are marked as changed (log/readers.pxd): those that the request named, those
whose log or role changed, and those that the last Fetch has not settled (`settle` in fetch_call.pyx). A Fetch that
ends without an answer gives its partitions back with `session_return`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkacore._fast.base.links cimport LinkedList, ListLink
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.readers cimport Change, Changes

ctypedef struct SessionPartition:
    Change change                        # first
    ListLink in_order                    # a partition that returned data goes to the end
    int32_t refs                         # atomic
    bint is_dropped
    const void *holder                   # the Fetch that took it last, while that looks at it
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
    SessionPartition *chain              # of its hash bucket

# The sender of a request and how it reads. A request that differs from the one before looks at every partition.
ctypedef struct SessionAsker:
    int32_t follower_id                  # -1: a client
    int64_t follower_epoch
    int32_t isolation
    int32_t api_version

ctypedef struct FetchSession:
    int32_t refs                         # atomic
    Mutex lock
    int32_t id
    int32_t epoch                        # atomic; the next request must carry it
    bint privileged                      # a follower's: no client's session takes its place
    bint uses_topic_ids                  # fetch version 13 or above
    int64_t created_ms                   # the cache's lock guards it and the next four
    int64_t used_ms
    int32_t cached_count                 # its partitions at the last fetch, for eviction
    int64_t cached_bytes                 # its bytes at the last fetch
    FetchSession *chain
    LinkedList order                     # SessionPartition.in_order
    int64_t bytes                        # its partitions; atomic
    uint64_t hash_key[2]                 # the cache's
    uint32_t bucket_mask
    SessionPartition **buckets
    SessionAsker asker
    Changes changes

# Counted; NULL when memory runs out. `hash_key`: two random words.
cdef FetchSession *session_create(const uint64_t *hash_key, bint uses_topic_ids) noexcept nogil
# The last count leaves all partitions: the caller holds no lock below the cache's.
cdef void session_release(FetchSession *session) noexcept nogil
cdef uint64_t session_key_hash(const uint64_t *hash_key, const uint8_t *key, int32_t size, int32_t index) noexcept nogil
cdef const uint8_t *session_key(const SessionPartition *partition, bint by_id) noexcept nogil

# The caller holds the session's lock for all of these. `topic` may be NULL in a session by ids; the name is copied.
cdef SessionPartition *session_find(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                    int32_t topic_size, int32_t index) noexcept nogil
# A new one is marked as changed. NULL when memory runs out.
cdef SessionPartition *session_put(FetchSession *session, const uint8_t *topic_id, const uint8_t *topic,
                                   int32_t topic_size, int32_t index) noexcept nogil
cdef void session_drop(FetchSession *session, SessionPartition *partition) noexcept nogil
cdef void session_move_last(FetchSession *session, SessionPartition *partition) noexcept nogil
cdef SessionPartition *session_of_order(ListLink *link) noexcept nogil
cdef void session_mark_all(FetchSession *session) noexcept nogil
# The first that is marked, counted; it is marked no longer. NULL: none is.
cdef SessionPartition *session_take(FetchSession *session) noexcept nogil
# Before a look at `p` (NULL: the node has no such partition): stops watching another one under the same name.
cdef void session_watch_only(SessionPartition *partition, const Partition *p) noexcept nogil

# Marks the partition again, as `changes_return` does, and releases the count.
cdef void session_return(SessionPartition *partition, bint first, int32_t state) noexcept nogil
cdef void session_partition_release(SessionPartition *partition) noexcept nogil

cdef int32_t sessions_alive() noexcept nogil  # in this process
