"""A partition as the data plane sees it: its log, its role and epochs, high watermark, followers and waiters.

A partition is counted; a Python handle owns one count. `log.lock` guards every field that is not marked atomic. Python
decides which broker leads and which replicas are in the ISR and publishes both with `partition_become`; native code
advances the high watermark from them.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.wait.io cimport LogDir
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
    WAIT_KINDS = 6

cdef enum:
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    READ_LOG_END = 2      # a follower's read
    READ_LOCAL = 3        # this node's own read, to the log's end, in any role

ctypedef struct Follower:
    int32_t broker_id
    bint in_sync          # as last published
    int64_t end_offset
    int64_t caught_up_ms
    int32_t fetch_epoch
    int64_t broker_epoch

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
    int32_t min_isr
    int64_t high_watermark
    int64_t last_stable_offset
    Follower *followers
    int32_t follower_count
    Waiter *waiting[WAIT_KINDS]

# Count 1, lazy, ROLE_NONE; NULL when memory runs out. `named`: the log writes partition.metadata, as all but the
# metadata log do.
cdef Partition *partition_new(LogDir *dir, const Clock *clock, LogConfig *config, const char *topic, int32_t topic_size,
                              const uint8_t *topic_id, int32_t index, bint named) noexcept nogil
cdef void partition_hold(Partition *p) noexcept nogil
cdef void partition_release(Partition *p) noexcept nogil

# Publishes the leader. Takes over `followers` (malloc'ed: the other replicas, when this one leads). A leader's epoch
# begins at the log's end. Wakes the waiters whose condition may never be met now. An older leader epoch or partition
# epoch changes nothing.
cdef bint partition_become(Partition *p, int role, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch,
                           int32_t min_isr, Follower *followers, int32_t follower_count) noexcept nogil
# ROLE_NONE or ROLE_GONE: refuses appends from now on and wakes all waiters. The caller stops or shuts the log
# afterwards.
cdef void partition_close(Partition *p, int role) noexcept nogil
cdef void partition_fail(Partition *p, int error) noexcept nogil  # its directory failed: wakes all waiters

# The condition of an acknowledgement: a WAIT_ kind and its offset; -1 when there is nothing to wait for.
ctypedef struct Acknowledgement:
    int64_t at
    int32_t kind

# Produce for one partition. `acks` as in the request, `origin` validate.pxd's AppendOrigin. 0; Kafka's error code;
# LOG_BLOCKED with `blocked` queued. `ack`: the condition for the answer (the replicas in sync; unless `acks` is 0 also
# a flush that the append makes due: UnifiedLog.append flushes before it returns). `wakes` gets the satisfied waiters;
# the caller wakes them without a lock.
cdef int partition_append(Partition *p, uint8_t *records, size_t size, int acks, int origin, Waiter *blocked,
                          AppendInfo *info, Acknowledgement *ack, WakeList *wakes) noexcept nogil
# The same for whole batches with their offsets (a follower's fetch, the metadata log); nothing waits for
# acknowledgements.
cdef int partition_append_as_follower(Partition *p, const uint8_t *records, size_t size, int32_t leader_epoch,
                                      Waiter *blocked,
                                      AppendInfo *info, WakeList *wakes) noexcept nogil

# For a request with many partitions, before its appends: starts to open a leader's log if the next append would wait
# for that.
cdef void partition_open_ahead(Partition *p) noexcept nogil

ctypedef struct FetchView:
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int32_t leader_id     # KIP-951: the leader, when it is not this node
    int32_t leader_epoch
    int64_t diverging_end_offset   # -1 unless the client's last fetched epoch diverges (KIP-595)
    int32_t diverging_epoch

# Fetch for one partition. 0; Kafka's error code; LOG_BLOCKED when an index on disk must be read (ask the I/O pool with
# `slowly`). FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH by `current_epoch` (-1 = not sent).
cdef int partition_read(Partition *p, int64_t offset, int32_t current_epoch, int32_t last_fetched_epoch,
                        int64_t max_bytes,
                        int isolation, bint min_one, bint slowly, ReadResult *out, FetchView *view) noexcept nogil

# Checks role and epoch for a ListOffsets, OffsetForLeaderEpoch or DeleteRecords: 0 or Kafka's error code.
cdef int partition_check_leader(Partition *p, int32_t current_epoch) noexcept nogil
cdef void partition_view(Partition *p, FetchView *view) noexcept nogil
# Under the lock: whether the high watermark of a leader is still below the start of its epoch. Until then clients
# cannot be given an end of the log: it might be below the end that an earlier leader reported (KIP-207).
cdef bint partition_is_behind(const Partition *p) noexcept nogil
cdef int64_t partition_high_watermark(Partition *p) noexcept nogil
cdef bint partition_satisfies(Partition *p, int kind, int64_t at) noexcept nogil  # whether a waiter would be
# KIP-101 / KIP-320: end offset of the largest epoch at or below `epoch`; -1, -1 when unknown.
cdef void partition_epoch_end(Partition *p, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil

# Queues `waiter` (kind and at are set) unless it is satisfied already; True when it was queued.
cdef bint partition_wait(Partition *p, Waiter *waiter) noexcept nogil
cdef void partition_unwait(Partition *p, Waiter *waiter) noexcept nogil  # no-op when it is in no list

# Advances the high watermark to what is appended, synced and replicated. Under the lock; True: call again for more
# wakes.
cdef bint partition_advance(Partition *p, WakeList *wakes) noexcept nogil

# Restores the high watermark of an earlier run, limited to the offsets of the log.
cdef void partition_restore(Partition *p, int64_t high_watermark) noexcept nogil
# DeleteRecords: removes all records below `offset` (-1: the high watermark). 0 or Kafka's error code; may block.
cdef int partition_delete_records(Partition *p, int64_t offset, int64_t *low_watermark) noexcept nogil
cdef int partition_expire_producers(Partition *p) noexcept nogil  # returns how many
# Writes partition.metadata of a log that has no topic id, because the log is older than topic ids or because a crash
# interrupted its creation. 0 or -errno; may block.
cdef int partition_assign_topic_id(Partition *p, const uint8_t *topic_id) noexcept nogil
