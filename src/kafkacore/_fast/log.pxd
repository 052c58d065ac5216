"""A partition's log: its segments, producers, leader epochs and checkpointed offsets, on one log directory.

`lock` covers every field that is not said to be atomic. It is held for memory work and for the append's pwrite, never
across a sync, a roll, an index look-up on disk or a call into Python; nobody waits for it while holding the GIL.

A log costs no file until its first append: `state` goes LAZY -> OPENING (a pool job makes the directory, partition.metadata
and the first segment, and syncs them) -> OPEN. An append that meets LAZY, OPENING or ROLLING, or a directory marked slow,
has no effect and says LOG_BLOCKED after it has put the caller's waiter on `blocked`; the caller tries again when woken.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.env cimport Clock, Disk
from kafkacore._fast.io cimport Dirty, Job, LogDir
from kafkacore._fast.park cimport Parked, Waiter, WakeList
from kafkacore._fast.producers cimport Producers
from kafkacore._fast.segment cimport Segment
from kafkacore._fast.sync cimport Mutex
from kafkacore._fast.validate cimport ValidateResult, ValidateRules

cdef enum:
    LOG_LAZY = 0
    LOG_OPENING = 1
    LOG_OPEN = 2
    LOG_ROLLING = 3
    LOG_FAILED = 4        # its directory is offline: KAFKA_STORAGE_ERROR
    LOG_CLOSED = 5

cdef enum:
    LOG_BLOCKED = -2000   # no effect yet; the waiter is queued and will be woken

# What a topic's configuration means to its log: immutable, counted, replaced whole when the configuration changes.
ctypedef struct LogConfig:
    int32_t refs
    ValidateRules rules                  # compression, timestamps, max.message.bytes, compacted, inflation limits
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int32_t index_interval_bytes
    int32_t segment_index_bytes
    int64_t retention_ms                 # -1 = none
    int64_t retention_bytes              # -1 = none
    int64_t file_delete_delay_ms
    int64_t flush_messages               # log.flush.interval.messages
    int64_t flush_ms
    bint delete_policy
    bint compact_policy
    bint preallocate
    int32_t producer_id_expiration_ms

# The segments in order, immutable: replaced whole, read under a count.
ctypedef struct SegmentList:
    int32_t refs
    int32_t count
    Segment *items[1]     # `count` of them, each counted

ctypedef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

# Where a recent batch begins: a consumer that follows the tail needs no index and no disk.
cdef enum:
    RECENT_BATCHES = 64

ctypedef struct Recent:
    int64_t base_offset
    int64_t position
    int64_t segment_base

ctypedef struct Log:
    Mutex lock
    int32_t state
    LogDir *dir
    const Clock *clock
    char *path                           # of its directory; made at the first append
    LogConfig *config
    SegmentList *segments
    Segment *active                      # the last of `segments`
    int64_t log_start_offset
    int64_t local_log_start_offset
    int64_t end_offset                   # of the next record
    int64_t synced_offset                # all below survives power loss (as far as the disk keeps its word)
    int64_t recovery_point
    int64_t unflushed_since_ms           # -1 when all is synced
    int64_t first_unstable_offset        # of the oldest open transaction; -1 when none
    int64_t total_bytes                  # of all segments; atomic
    int64_t appended_bytes               # since start; atomic, for metrics
    EpochEntry *epochs
    int32_t epoch_count
    int32_t epoch_capacity
    Producers *producers
    Recent recent[RECENT_BATCHES]
    int32_t recent_next
    Waiter *blocked                      # appends that wait for OPEN
    Dirty dirty
    Job job                              # open or roll: one at a time
    void (*on_synced)(Log *log, WakeList *wakes) noexcept nogil  # under the lock, on the committer's thread

ctypedef struct AppendInfo:
    int64_t first_offset
    int64_t last_offset
    int64_t log_append_time_ms           # -1 unless message.timestamp.type=LogAppendTime
    int64_t log_start_offset
    bint duplicate                       # an idempotent producer's batch that is already here: first_offset is its old one
    ValidateResult validated             # which record of the batch was wrong

# Both append whole batches; `records` may be patched in place. 0; a Kafka error code (> 0); LOG_BLOCKED.
cdef int log_append_as_leader(Log *log, uint8_t *records, size_t size, int32_t leader_epoch, int origin, Waiter *blocked,
                              AppendInfo *info) noexcept nogil
cdef int log_append_as_follower(Log *log, uint8_t *records, size_t size, Waiter *blocked, AppendInfo *info) noexcept nogil

ctypedef struct ReadResult:
    Segment *segment      # counted; NULL when nothing is to be read
    int64_t position
    int64_t size          # 0 at the end of what may be seen
    int64_t first_offset  # base offset of the first batch
    bint cached           # a recent range: no need to ask whether it is in the page cache

# Batches from the one that holds `offset` up to `bound` (exclusive), about `max_bytes`: at least one whole batch when
# `min_one`. 0; OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR. Never blocks: reads of an index on disk say LOG_BLOCKED (the
# caller hands `log_read_slowly`, the same call, to the I/O pool).
cdef int log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one, ReadResult *out) noexcept nogil
cdef int log_read_slowly(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                         ReadResult *out) noexcept nogil

# Pool threads only. Kafka's answer to ListOffsets by time: offset and timestamp of the first record at or after it; -1, -1.
cdef int log_offset_by_time(Log *log, int64_t timestamp_ms, int64_t bound, int64_t *offset, int64_t *found_ms,
                            int32_t *leader_epoch) noexcept nogil
# KIP-101 / KIP-320: end offset of the largest epoch at or below `epoch`; -1, -1 when unknown.
cdef void log_epoch_end(Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil
