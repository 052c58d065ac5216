"""A partition in the data plane (the native code that serves Produce and Fetch): its log, its role and epochs, its high
watermark, its followers, and its waiters. A waiter (park.pxd) stands for a request that waits for an event in the
partition.

A partition is reference-counted. A Python handle holds one reference. `log.lock`, called "the lock" below, guards every
field, except those commented "atomic". Python decides which broker leads and which replicas are in the ISR, and
publishes both with `partition_lead` and `partition_follow` (partition_role.pxd). Native code records the followers'
fetches (replicas.pxd) and advances the high watermark. Each change of a partition names the epoch to which it belongs.
Under the lock, the partition rejects a change from an older epoch.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.base.links cimport LinkedList, ListLink
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.wait.io cimport LogDir
from kafkacore._fast.log.isr_edges cimport IsrEdges, IsrLink
from kafkacore._fast.log.log cimport Log, LogConfig
from kafkacore._fast.log.append cimport AppendInfo
from kafkacore._fast.log.read cimport ReadResult
from kafkacore._fast.log.traffic cimport Traffic
from kafkacore._fast.wait.park cimport Waiter, WakeList

cdef enum:
    ROLE_NONE = 0         # the partition is known, but this broker neither leads nor follows it
    ROLE_LEADER = 1
    ROLE_FOLLOWER = 2
    ROLE_GONE = 3         # the partition is deleted: its waiters are woken; requests get UNKNOWN_TOPIC_OR_PARTITION

# The kinds of waiters. `at` is the offset in the waiter.
cdef enum:
    WAIT_FETCH = 0        # satisfied when the high watermark passes `at`
    WAIT_FOLLOWER = 1     # satisfied when the log end passes `at`
    WAIT_ACKS = 2         # satisfied when the high watermark reaches `at`
    WAIT_COMMITTED = 3    # satisfied when the last stable offset passes `at`
    WAIT_SYNCED = 4       # satisfied when the synced offset reaches `at`
    WAIT_ACKS_SYNCED = 5  # satisfied when both the high watermark and the synced offset reach `at`
    WAIT_DELETED = 6      # satisfied when the low watermark of all replicas reaches `at` (DeleteRecords)
    WAIT_KINDS = 7

cdef enum:
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    READ_LOG_END = 2      # a follower's read, up to the log end
    READ_LOCAL = 3        # this node's own read, up to the log end, in any role

cdef enum:
    NO_EPOCH = -1         # the request has no epoch
    NEVER_MS = -0x7FFFFFFF  # earlier than any time of this process's clocks

# Another replica, as the leader knows it. At the start of a leader epoch, the leader knows no positions. Only a Fetch
# in this epoch sets a follower's position.
ctypedef struct Follower:
    int32_t broker_id
    bint in_sync              # the follower is in the committed ISR
    bint is_joining           # the follower is only in the proposed ISR, and so in the maximal ISR (replicas.pxd)
    bint must_leave           # the follower is in the ISR, and lagged at the last periodic check
    bint must_fetch           # the follower has left the ISR, and has not fetched since
    int64_t broker_epoch      # the broker epoch in the follower's last fetch; -1 if there was none
    int64_t end_offset        # the end of the follower's log; -1 before its first fetch
    int64_t log_start_offset  # the start of the follower's log; -1 before its first fetch
    int64_t caught_up_ms      # monotonic; the last time at which the follower had all records of this log
    int64_t fetched_ms        # the time of the follower's last fetch
    int64_t leader_end_offset  # the end of the leader's log at that fetch

# A partition's offsets at the time when its readers were last notified of a change.
ctypedef struct Told:
    int64_t end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset

ctypedef struct Partition:
    # Must be the first field, so that a pointer to the `Log` is also a pointer to its `Partition`.
    Log log
    int32_t refs          # atomic
    int32_t index
    uint8_t topic_id[16]
    char *topic           # `topic_size` bytes, without a terminating zero
    int32_t topic_size
    int32_t role
    int32_t leader_id
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t min_isr       # min.insync.replicas, limited by the number of replicas
    # `generation` counts the leaderships of this node. A leadership ends when the node applies another role, and also
    # when the log is truncated. Records can be acknowledged only in the leadership in which they were appended.
    int64_t generation
    int64_t rewinds       # the value of `log.rewinds` when `generation` was last advanced
    bint wakes_everybody  # set after a truncation, until all waiters have been woken
    int64_t epoch_start_offset  # the offset at which this leader's epoch begins
    # Whether this leader was elected uncleanly. In that case, the next AlterPartition names the leader recovery state
    # RECOVERED (KIP-704).
    int32_t is_recovering
    int32_t is_proposing  # an AlterPartition has been sent and has no answer yet
    int32_t in_sync_count  # the number of members of the committed ISR, this node included
    int64_t high_watermark
    int64_t last_stable_offset
    Follower *followers
    int32_t follower_count
    IsrEdges *edges       # the queue of ISR changes (isr_edges.pxd), with a reference; NULL if the ISR never changes
    IsrLink link
    Waiter *waiting[WAIT_KINDS]
    LinkedList readers    # fetch sessions that learn of each change (readers.pxd)
    Told told
    bint role_changed     # the role or the ISR has changed, and `readers` do not know it yet
    int32_t throttled     # atomic: bits of replication_quota.pxd
    int32_t *adding       # the brokers that a reassignment adds: their number, then their ids; NULL for none
    bint is_added         # this broker is one of `adding`
    # Atomic. On a follower, the leader's high watermark minus this log's end, at the follower's last fetch. -1 before
    # its first fetch.
    int64_t fetch_lag
    Traffic traffic

# Creates a partition with one reference, a log without files, and ROLE_NONE. Returns NULL if memory runs out. `named`
# is true if the log writes partition.metadata. All logs except the metadata log do so.
cdef Partition *partition_new(LogDir *dir, const Clock *clock, LogConfig *config, const char *topic, int32_t topic_size,
                              const uint8_t *topic_id, int32_t index, bint named) noexcept nogil
cdef void partition_hold(Partition *p) noexcept nogil
cdef void partition_release(Partition *p) noexcept nogil

# Sets ROLE_NONE or ROLE_GONE, and wakes all waiters. From then on, the partition rejects appends. The caller then stops
# or closes the log.
cdef void partition_close(Partition *p, int role) noexcept nogil
# Makes all fetch sessions stop watching the partition. Each session then checks the partition once more. This function
# releases the references of the sessions, so the caller must hold a reference too.
cdef void partition_dismiss_readers(Partition *p) noexcept nogil
# Call this when the log directory has failed. Wakes all waiters.
cdef void partition_fail(Partition *p, int error) noexcept nogil

# The condition for an acknowledgement: `kind` is a WAIT_ constant, and `at` is the offset that must be reached, or -1
# if there is nothing to wait for. `generation` is the leadership in which the records were appended.
ctypedef struct Acknowledgement:
    int64_t at
    int64_t generation
    int32_t kind

# Performs a Produce for one partition. `acks` comes from the request. `origin` is an `AppendOrigin` of validate.pxd.
# Returns 0, a Kafka error code, or LOG_BLOCKED (log.pxd) with the waiter `blocked` queued. Sets `ack` to the condition
# for the answer. If `acks` is -1, the condition is that all replicas in the ISR have the records. If flush.messages
# requires a flush after this append, the condition also includes the flush, unless `acks` is 0. (Kafka's
# UnifiedLog.append flushes before it returns.) Adds satisfied waiters to `wakes`; the caller wakes them without holding
# a lock.
cdef int partition_append(Partition *p, uint8_t *records, size_t size, int acks, int origin, Waiter *blocked,
                          AppendInfo *info, Acknowledgement *ack, WakeList *wakes) noexcept nogil
# Appends whole batches that already have their offsets, and that the leader of `leader_epoch` sent. If this node is not
# a follower in that epoch, returns FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.
cdef int partition_append_as_follower(Partition *p, const uint8_t *records, size_t size, int32_t leader_epoch,
                                      Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil
# Appends batches with leader epochs up to `most_epoch` to a log that only its owner writes. Such a log is the metadata
# log, or a copy of a log in another directory.
cdef int partition_append_replicated(Partition *p, const uint8_t *records, size_t size, int32_t most_epoch,
                                     Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil

# Starts to open a leader's log if the next append would have to wait for that. If a request with many partitions must
# wait for one log, the request calls this for its other partitions, so that their logs are opened together.
cdef void partition_open_ahead(Partition *p) noexcept nogil

ctypedef struct FetchView:
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t end_offset
    int32_t leader_id     # a response names the leader if another node leads (KIP-951)
    int32_t leader_epoch
    int64_t diverging_end_offset   # -1 unless the client's last fetched epoch diverges (KIP-595)
    int32_t diverging_epoch
    bint is_in_sync       # the requesting follower is in the committed ISR
    # Whether the replication quota prevented the read. It does so if the quota is exceeded, the partition is throttled,
    # and the follower is not in the ISR.
    bint is_held_back
    bint is_added         # a reassignment adds the requesting follower

# A follower's fetch, for `replicas_note`.
ctypedef struct FollowerFetch:
    int32_t broker_id
    int64_t broker_epoch      # -1 if not sent
    int64_t offset            # the end offset of the follower's log
    int64_t log_start_offset
    int64_t now_ms            # monotonic

ctypedef struct ReadAsked:
    int64_t offset
    int64_t max_bytes
    int32_t current_epoch         # NO_EPOCH if not sent
    int32_t last_fetched_epoch    # NO_EPOCH if not sent
    int isolation                 # READ_...
    bint min_one
    bint slowly                   # the read is allowed to wait for an index on disk
    bint from_any_replica         # a follower can answer the request too (KIP-392)
    const FollowerFetch *follower  # the follower that sent the request; for READ_LOG_END
    bint notes                    # the first attempt of a follower's fetch: the read also notes the follower's position
    bint counts                   # the first attempt of any fetch: the read counts for TotalFetchRequestsPerSec
    # The leader's quota is exceeded, so throttled partitions give no records to replicas outside the ISR (KIP-73).
    bint over_quota
    ListLink *reader              # `in_readers` of a `Change` (readers.pxd) that learns of later changes; or NULL

# Sets the three given fields. Sets the epochs to NO_EPOCH, and all other fields to zero.
cdef void read_asked_init(ReadAsked *asked, int64_t offset, int64_t max_bytes, int isolation) noexcept nogil
# Performs a Fetch for one partition. Returns 0, a Kafka error code, or LOG_BLOCKED if an index on disk must be read. In
# the last case, call this again with `slowly` on a thread of the I/O pool. Returns FENCED_LEADER_EPOCH or
# UNKNOWN_LEADER_EPOCH if `current_epoch` is not the partition's leader epoch. Notes a follower's fetch before the
# read. So if this fetch advances the high watermark, the answer has the new value. Adds satisfied waiters to `wakes`.
cdef int partition_read(Partition *p, const ReadAsked *asked, ReadResult *out, FetchView *view,
                        WakeList *wakes) noexcept nogil
# Notes a follower's fetch without a read. Returns 0, or the error code that `partition_read` would return.
cdef int partition_followed(Partition *p, const FollowerFetch *fetch, int32_t current_epoch,
                            WakeList *wakes) noexcept nogil

# Checks role and epoch for ListOffsets, OffsetForLeaderEpoch or DeleteRecords. Returns 0 or a Kafka error code.
cdef int partition_check_leader(Partition *p, int32_t current_epoch) noexcept nogil
# Like `partition_check_leader`, for a request that any replica can answer.
cdef int partition_check_replica(Partition *p, int32_t current_epoch) noexcept nogil
cdef void partition_view(Partition *p, FetchView *view) noexcept nogil
# Returns whether the high watermark of a leader is still below the start of the leader's epoch. In that case the node
# must not report the end of the log to a client, because an earlier leader may have reported a higher end (KIP-207).
# Call this with the lock held.
cdef bint partition_is_behind(const Partition *p) noexcept nogil
cdef int64_t partition_high_watermark(Partition *p) noexcept nogil
cdef bint partition_satisfies(Partition *p, int kind, int64_t at) noexcept nogil  # whether a waiter would be satisfied
# Finds the largest epoch at or below `epoch`, and its end offset (KIP-101, KIP-320). `epochs_end` (epochs.pxd)
# describes the results.
cdef void partition_epoch_end(Partition *p, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil

# Queues `waiter`, whose `kind` and `at` are set, unless its condition is already satisfied. Returns True if it queued
# the waiter.
cdef bint partition_wait(Partition *p, Waiter *waiter) noexcept nogil
# Returns 0 if the records are acknowledged, and LOG_BLOCKED if they are not yet. Returns NOT_LEADER_OR_FOLLOWER if the
# leadership has ended (even if this node leads again), NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR has shrunk below
# min.insync.replicas since the append, or KAFKA_STORAGE_ERROR.
cdef int partition_acknowledged(Partition *p, const Acknowledgement *ack) noexcept nogil
# Queues `waiter` for `ack`. Returns False if `partition_acknowledged` would already return a result.
cdef bint partition_wait_for_ack(Partition *p, const Acknowledgement *ack, Waiter *waiter) noexcept nogil
cdef void partition_unwait(Partition *p, Waiter *waiter) noexcept nogil  # does nothing if the waiter is in no list

# Call this with the lock held. Returns 0 if this node leads in `current_epoch`. With `any_replica`, returns 0 also if
# this node follows in `current_epoch`. Otherwise returns an error code.
cdef int partition_role_error(const Partition *p, int32_t current_epoch, bint any_replica) noexcept nogil
# Call this with the lock held. Returns 0 if this node now follows the leader of `leader_epoch`, else an error code.
cdef int partition_follower_error(const Partition *p, int32_t leader_epoch) noexcept nogil
# Call this with the lock held. Collects all waiters. Returns True if it must be called again for more waiters.
cdef bint partition_take_everybody(Partition *p, WakeList *wakes) noexcept nogil
# Call this without the lock when more waiters are satisfied than one `WakeList` can hold. Wakes one full list after
# another, until the remaining waiters fit into one list.
cdef void partition_wake_rest(Partition *p, WakeList *wakes) noexcept nogil
cdef Partition *partition_of_link(IsrLink *link) noexcept nogil
cdef int64_t partition_monotonic_ms(const Partition *p) noexcept nogil

# Call this with the lock held. Advances the high watermark over all records that are appended, synced and replicated.
# Returns True if it must be called again for more waiters.
cdef bint partition_advance(Partition *p, WakeList *wakes) noexcept nogil

# Restores the high watermark that an earlier run saved, limited to the offsets of the log.
cdef void partition_restore(Partition *p, int64_t high_watermark) noexcept nogil
# Performs DeleteRecords: removes all records below `offset` on this node. -1 stands for the high watermark. Returns 0
# or a Kafka error code; may block. Sets `low_watermark` to the lowest log start offset of all live replicas. Sets
# `deleted` to the condition for the answer: all live replicas have removed the records too.
cdef int partition_delete_records(Partition *p, int64_t offset, int64_t *low_watermark,
                                  Acknowledgement *deleted) noexcept nogil
cdef int64_t partition_low_watermark(Partition *p) noexcept nogil
cdef int partition_expire_producers(Partition *p) noexcept nogil  # returns the number of expired producers
# Writes partition.metadata for a log that has no topic id. Such a log was created before topic ids existed, or a crash
# interrupted its creation. Returns 0, LOG_BLOCKED with `blocked` queued, or -errno; may block. Call this only while no
# fetcher knows the partition, because fetchers find partitions by their topic ids.
cdef int partition_assign_topic_id(Partition *p, const uint8_t *topic_id, Waiter *blocked) noexcept nogil
