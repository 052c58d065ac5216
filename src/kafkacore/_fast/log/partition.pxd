"""A partition in the data plane: its log, its role and epochs, high watermark, followers and waiters.

A partition is counted; a Python handle owns one count. `log.lock` guards every field that is not marked atomic. Python
decides which broker leads and which replicas are in the ISR and publishes both with `partition_lead` and
`partition_follow` (partition_role); native code notes the followers' fetches (replicas) and advances the high
watermark. Each change of a partition names the epoch to which it belongs; under the lock the partition refuses a change
of any other epoch.
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
from kafkacore._fast.wait.park cimport Waiter, WakeList

cdef enum:
    ROLE_NONE = 0         # known, but not led or followed here
    ROLE_LEADER = 1
    ROLE_FOLLOWER = 2
    ROLE_GONE = 3         # deleted: waiters are woken, a late request gets UNKNOWN_TOPIC_OR_PARTITION

cdef enum:
    WAIT_FETCH = 0        # satisfied when the high watermark passes `at`
    WAIT_FOLLOWER = 1     # the log end passes `at`
    WAIT_ACKS = 2         # the high watermark reaches `at`
    WAIT_COMMITTED = 3    # the last stable offset passes `at`
    WAIT_SYNCED = 4       # the synced offset reaches `at`
    WAIT_ACKS_SYNCED = 5  # both the high watermark and the synced offset reach `at`
    WAIT_DELETED = 6      # the low watermark of all replicas reaches `at` (DeleteRecords)
    WAIT_KINDS = 7

cdef enum:
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    READ_LOG_END = 2      # a follower's read
    READ_LOCAL = 3        # this node's own read, to the log's end, in any role

cdef enum:
    NO_EPOCH = -1         # a request without an epoch
    NEVER_MS = -0x7FFFFFFF  # earlier than any time of this process's clocks

# Another replica, as its leader knows it. A leader epoch begins without positions: only a Fetch in this epoch sets a
# follower's position.
ctypedef struct Follower:
    int32_t broker_id
    bint in_sync              # in the committed ISR
    bint is_joining           # in the proposed ISR alone; the maximal ISR has both (KIP-497)
    int64_t broker_epoch      # the broker epoch in its last fetch; -1 when it named none
    int64_t end_offset        # -1 while it has not fetched
    int64_t log_start_offset  # likewise
    int64_t caught_up_ms      # monotonic; when it last had all records of this log
    int64_t fetched_ms        # of its last fetch
    int64_t leader_end_offset  # the end of this log at its last fetch

# A partition's offsets when its readers last heard of a change.
ctypedef struct Told:
    int64_t end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset

ctypedef struct Partition:
    Log log               # first, so that a Log * is also its Partition *; log.lock is the partition's lock
    int32_t refs          # atomic
    int32_t index
    uint8_t topic_id[16]
    char *topic           # not terminated; `topic_size` bytes
    int32_t topic_size
    int32_t role
    int32_t leader_id
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t min_isr       # min.insync.replicas; the number of replicas limits it
    # `generation` counts the leaderships of this node. A leadership ends when the node applies another role, and when
    # the log is truncated. Records are acknowledged only in the leadership in which they were appended.
    int64_t generation
    int64_t rewinds       # the log's count of truncations when `generation` was last advanced
    bint wakes_everybody  # not all waiters of the last truncation are woken yet
    int64_t epoch_start_offset  # the offset at which this leader's epoch begins
    int32_t is_recovering  # elected uncleanly: RECOVERED by the next AlterPartition (KIP-704)
    int32_t is_proposing  # an AlterPartition is under way
    int32_t in_sync_count  # the number of members of the committed ISR, this node included
    int64_t high_watermark
    int64_t last_stable_offset
    Follower *followers
    int32_t follower_count
    IsrEdges *edges       # counted; NULL when its ISR never changes
    IsrLink link
    Waiter *waiting[WAIT_KINDS]
    LinkedList readers    # fetch sessions that hear of each change (readers.pxd)
    Told told
    bint role_changed     # the role or the ISR did, and the readers were not told yet
    int32_t throttled     # atomic: bits of replication_quota.pxd

# Count 1, lazy, ROLE_NONE; NULL when memory runs out. `named`: the log writes partition.metadata, as all but the
# metadata log do.
cdef Partition *partition_new(LogDir *dir, const Clock *clock, LogConfig *config, const char *topic, int32_t topic_size,
                              const uint8_t *topic_id, int32_t index, bint named) noexcept nogil
cdef void partition_hold(Partition *p) noexcept nogil
cdef void partition_release(Partition *p) noexcept nogil

# ROLE_NONE or ROLE_GONE: refuses appends from now on and wakes all waiters. The caller stops or shuts the log
# afterwards.
cdef void partition_close(Partition *p, int role) noexcept nogil
# Fetch sessions that watch the partition look again, and then no longer keep it alive. The caller holds a count.
cdef void partition_dismiss_readers(Partition *p) noexcept nogil
cdef void partition_fail(Partition *p, int error) noexcept nogil  # its directory failed: wakes all waiters

# The condition of an acknowledgement: a WAIT_ kind and its offset; -1 when there is nothing to wait for. `generation`
# is the leadership in which the records were appended.
ctypedef struct Acknowledgement:
    int64_t at
    int64_t generation
    int32_t kind

# Produce for one partition. `acks` as in the request, `origin` validate.pxd's AppendOrigin. 0; Kafka's error code;
# LOG_BLOCKED with `blocked` queued. `ack`: the condition for the answer (the replicas in sync; unless `acks` is 0 also
# a flush that the append makes due: UnifiedLog.append flushes before it returns). `wakes` gets the satisfied waiters;
# the caller wakes them without a lock.
cdef int partition_append(Partition *p, uint8_t *records, size_t size, int acks, int origin, Waiter *blocked,
                          AppendInfo *info, Acknowledgement *ack, WakeList *wakes) noexcept nogil
# Appends whole batches that have their offsets already, sent by the leader of `leader_epoch`. Refused with
# FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER unless this node follows in that epoch now.
cdef int partition_append_as_follower(Partition *p, const uint8_t *records, size_t size, int32_t leader_epoch,
                                      Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil
# Appends batches of epochs up to `most_epoch` to a log that only its owner writes: the metadata log, or a copy in
# another directory.
cdef int partition_append_replicated(Partition *p, const uint8_t *records, size_t size, int32_t most_epoch,
                                     Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil

# For a request with many partitions, before its appends: starts to open a leader's log if the next append would wait
# for that.
cdef void partition_open_ahead(Partition *p) noexcept nogil

ctypedef struct FetchView:
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t end_offset
    int32_t leader_id     # KIP-951: the leader, when it is not this node
    int32_t leader_epoch
    int64_t diverging_end_offset   # -1 unless the client's last fetched epoch diverges (KIP-595)
    int32_t diverging_epoch
    bint is_in_sync       # the follower that asks is in the committed ISR
    bint is_held_back     # it is not, the partition is throttled, and the quota is exceeded: nothing was read

# A follower's fetch, as `replicas_note` takes it.
ctypedef struct FollowerFetch:
    int32_t broker_id
    int64_t broker_epoch      # -1: not sent
    int64_t offset            # its log end
    int64_t log_start_offset
    int64_t now_ms            # monotonic

ctypedef struct ReadAsked:
    int64_t offset
    int64_t max_bytes
    int32_t current_epoch         # NO_EPOCH: not sent
    int32_t last_fetched_epoch    # likewise
    int isolation                 # READ_...
    bint min_one
    bint slowly                   # may read an index on disk
    bint from_any_replica         # a follower answers too (KIP-392)
    const FollowerFetch *follower  # READ_LOG_END: who asks
    bint notes                    # the first look of a follower's fetch: its position counts
    bint over_quota               # of the leader: throttled partitions wait for replicas outside the ISR (KIP-73)
    ListLink *reader              # NULL, or `Change.in_readers`: it hears of what changes from this read on

# Everything else zero, and no epochs.
cdef void read_asked_init(ReadAsked *asked, int64_t offset, int64_t max_bytes, int isolation) noexcept nogil
# Fetch for one partition. 0; Kafka's error code; LOG_BLOCKED when an index on disk must be read (ask the I/O pool with
# `slowly`). FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH by `current_epoch`. Notes a follower's fetch before it reads,
# so that the answer has the high watermark that the fetch moved. `wakes` gets the satisfied waiters.
cdef int partition_read(Partition *p, const ReadAsked *asked, ReadResult *out, FetchView *view,
                        WakeList *wakes) noexcept nogil
# Notes a follower's fetch without a read. Returns 0 or the error code that `partition_read` would return.
cdef int partition_followed(Partition *p, const FollowerFetch *fetch, int32_t current_epoch,
                            WakeList *wakes) noexcept nogil

# Checks role and epoch for a ListOffsets, OffsetForLeaderEpoch or DeleteRecords: 0 or Kafka's error code.
cdef int partition_check_leader(Partition *p, int32_t current_epoch) noexcept nogil
# As above, for a request that any replica may answer.
cdef int partition_check_replica(Partition *p, int32_t current_epoch) noexcept nogil
cdef void partition_view(Partition *p, FetchView *view) noexcept nogil
# Under the lock: whether the high watermark of a leader is still below the start of its epoch. Until then no client may
# get an end of the log, because it could be below the end that an earlier leader has reported (KIP-207).
cdef bint partition_is_behind(const Partition *p) noexcept nogil
cdef int64_t partition_high_watermark(Partition *p) noexcept nogil
cdef bint partition_satisfies(Partition *p, int kind, int64_t at) noexcept nogil  # whether a waiter would be
# KIP-101 / KIP-320: end offset of the largest epoch at or below `epoch`; -1, -1 when unknown.
cdef void partition_epoch_end(Partition *p, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil

# Queues `waiter` (kind and at are set) unless it is satisfied already; True when it was queued.
cdef bint partition_wait(Partition *p, Waiter *waiter) noexcept nogil
# Returns 0 when acknowledged, LOG_BLOCKED when not yet, NOT_LEADER_OR_FOLLOWER when its leadership has ended (even if
# this node leads again), NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR has shrunk below min.insync.replicas since, or
# KAFKA_STORAGE_ERROR.
cdef int partition_acknowledged(Partition *p, const Acknowledgement *ack) noexcept nogil
# Queues `waiter` for `ack`; False when `partition_acknowledged` has an answer.
cdef bint partition_wait_for_ack(Partition *p, const Acknowledgement *ack, Waiter *waiter) noexcept nogil
cdef void partition_unwait(Partition *p, Waiter *waiter) noexcept nogil  # no-op when it is in no list

# Under the lock: whether this node leads (or with `any_replica` also follows) in `current_epoch`. 0 or an error code.
cdef int partition_role_error(const Partition *p, int32_t current_epoch, bint any_replica) noexcept nogil
# Under the lock: whether this node follows the leader of `leader_epoch` now. 0 or an error code.
cdef int partition_follower_error(const Partition *p, int32_t leader_epoch) noexcept nogil
# Under the lock: collects all waiters. True: call again for more wakes.
cdef bint partition_take_everybody(Partition *p, WakeList *wakes) noexcept nogil
# Without the lock, when more waiters are satisfied than one list holds: wakes lists until the rest fits one.
cdef void partition_wake_rest(Partition *p, WakeList *wakes) noexcept nogil
cdef Partition *partition_of_link(IsrLink *link) noexcept nogil
cdef int64_t partition_monotonic_ms(const Partition *p) noexcept nogil

# Advances the high watermark to what is appended, synced and replicated. Under the lock; True: call again for more
# wakes.
cdef bint partition_advance(Partition *p, WakeList *wakes) noexcept nogil

# Restores the high watermark of an earlier run, limited to the offsets of the log.
cdef void partition_restore(Partition *p, int64_t high_watermark) noexcept nogil
# DeleteRecords: removes all records below `offset` (-1 stands for the high watermark) on this node. Returns 0 or
# Kafka's error code; may block. `deleted` is the condition for the answer: all live replicas have removed the records
# too.
cdef int partition_delete_records(Partition *p, int64_t offset, int64_t *low_watermark,
                                  Acknowledgement *deleted) noexcept nogil
cdef int64_t partition_low_watermark(Partition *p) noexcept nogil
cdef int partition_expire_producers(Partition *p) noexcept nogil  # returns how many
# Writes partition.metadata of a log that has no topic id, because the log is older than topic ids or because a crash
# interrupted its creation. 0 or -errno; may block.
cdef int partition_assign_topic_id(Partition *p, const uint8_t *topic_id) noexcept nogil
