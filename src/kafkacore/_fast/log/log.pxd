"""A partition's log: its segments, producers, leader epochs and checkpointed offsets, on one log directory.

`lock` guards every field that is not marked atomic. Threads hold it for memory work and for the append's pwrite, never
across a sync, a roll, an index look-up on disk or a call into Python. No thread waits for it while holding the GIL.

A log has no file before its first append: `state` goes LAZY -> OPENING (a pool job makes the directory,
partition.metadata and the first segment, and syncs them) -> OPEN. An append that meets LAZY, OPENING or ROLLING changes
nothing: it puts the caller's waiter on `blocked` and returns LOG_BLOCKED, and the caller tries again when woken.

Modules: log (life, list of segments, waiters), epochs, append, read, open, roll, commit, truncate, delete, shut,
recovery, move.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.world.environment cimport Clock, Disk
from kafkacore._fast.wait.io cimport Dirty, Job, LogDir
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.wait.park cimport Parked, Waiter, WakeList
from kafkacore._fast.log.producers cimport Producers
from kafkacore._fast.log.segment cimport Segment
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.record.validate cimport ValidateResult, ValidateRules

cdef enum:
    LOG_LAZY = 0
    LOG_OPENING = 1
    LOG_OPEN = 2
    LOG_ROLLING = 3
    LOG_FAILED = 4        # its directory is offline: KAFKA_STORAGE_ERROR
    LOG_CLOSED = 5

# The entries that the leader-epoch-checkpoint file lacks.
cdef enum:
    EPOCHS_SAVED = 0
    EPOCHS_EMPTY = 1      # only epochs without a record, which every start drops, so they are not worth a sync yet
    EPOCHS_BEHIND = 2

cdef enum:
    LOG_BLOCKED = -2000   # nothing has changed; the waiter is queued and will be woken

# A topic's configuration as its log uses it: immutable, counted, replaced whole when the configuration changes.
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

# The segments in order. Immutable: a change replaces the whole list, and readers hold a count of it.
ctypedef struct SegmentList:
    int32_t refs
    int32_t count
    Segment *items[1]     # `count` of them, each counted

ctypedef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

# Positions of recent batches, so that a consumer at the tail needs no index and no disk.
cdef enum:
    RECENT_BATCHES = 64

ctypedef struct RecentBatch:
    int64_t base_offset
    int64_t position

# The newest batches of the active segment, one after the other without a gap; emptied by a roll or a truncation.
ctypedef struct Recent:
    int32_t first         # index of the oldest
    int32_t count
    RecentBatch batches[RECENT_BATCHES]

ctypedef struct Log:
    Mutex lock
    int32_t state
    LogDir *dir                          # changes when the log moves; without the lock read it by `log_dir`
    const Clock *clock
    # The partition that the log is part of: its names, and its reference count by way of `hold` and `release`.
    const char *topic
    int32_t topic_size
    int32_t index
    const uint8_t *topic_id              # NULL when no partition.metadata is written (the metadata log)
    void (*hold)(Log *log) noexcept nogil
    void (*release)(Log *log) noexcept nogil
    # Called under the lock after synced_offset moved or `state` became FAILED: collects the waiters to wake. Returns
    # True when it must be called again.
    bint (*on_change)(Log *log, WakeList *wakes) noexcept nogil
    char *suffix                         # of its directory's name; NULL unless it is a future log
    char *path                           # of its directory; made at the first append
    LogConfig *config
    SegmentList *segments
    Segment *active                      # the last of `segments`
    int64_t log_start_offset
    int64_t local_log_start_offset
    int64_t end_offset                   # of the next record
    int64_t cuts                         # counts removals of files; a look-up from before a removal may be out of date
    int64_t truncations                  # counts truncations and moves
    int64_t rewinds                      # counts truncations only: after one, the same offsets may get other records
    bint swapping                        # compacted segments are taking their places: see compact/swap.pxd
    int64_t synced_offset                # all records below survive power loss
    int64_t checkpointed_offset          # the greatest recovery point that may stand in the checkpoint file
    int64_t commit_offset                # the next commit syncs up to here
    int64_t unflushed_since_ns           # monotonic; -1 when all records are synced
    int64_t first_unstable_offset        # of the oldest open transaction; -1 when none
    int64_t last_aborted_offset          # no aborted transaction ends after it; -1 when there are none; atomic
    int64_t total_bytes                  # of all segments; atomic
    int64_t appended_bytes               # since start; atomic, for metrics
    EpochEntry *epochs
    int32_t epoch_count
    int32_t epoch_capacity
    int epochs_dirty                     # what the checkpoint file lacks: EPOCHS_SAVED...
    Producers *producers                 # NULL until the first append
    Recent *recent                       # likewise
    int64_t snapshot_offset              # of the newest producer snapshot
    Waiter *blocked                      # appends that wait for OPEN
    Dirty dirty
    Job job                              # open or roll: one at a time
    int64_t refuse_until_ns              # monotonic; a job found no file descriptor, see jobs.pxd; 0: none did
    int64_t roll_offset                  # base offset of the segment that the roll under way makes
    Job epochs_job
    bint epochs_job_queued
    Mail cut_mail                        # a truncation waits until the recovery point is checkpointed: log/cuts.pxd
    Log *next_cut
    bint awaits_checkpoint
    Job ahead_job                        # reserves disk blocks for a log that grows fast
    bint ahead_job_queued

cdef LogConfig *config_new() noexcept nogil  # LogSettings sets the fields; NULL: no memory
cdef void config_hold(LogConfig *config) noexcept nogil
cdef void config_release(LogConfig *config) noexcept nogil

# Makes a lazy log that begins at `start_offset`. It takes its own count of `config`. The caller sets names and
# callbacks.
cdef int log_init(Log *log, LogDir *dir, const Clock *clock, LogConfig *config, int64_t start_offset) noexcept nogil
cdef void log_destroy(Log *log) noexcept nogil  # when its last count is released; does not sync the files
cdef int64_t log_now_ms(Log *log) noexcept nogil

# --- under the lock ---
cdef char *log_directory_path(const Log *log) noexcept nogil  # malloc'ed "<log dir>/<topic>-<index><suffix>"
cdef void log_block(Log *log, Waiter *waiter) noexcept nogil  # no-op for NULL
# The last segment that begins at or before `offset`, counted.
cdef Segment *log_segment_at(const Log *log, int64_t offset) noexcept nogil
cdef void recent_clear(Log *log) noexcept nogil
cdef void recent_add(Log *log, int64_t base_offset, int64_t position) noexcept nogil
# Replaces the list by `items` (counts are taken over) and sets total_bytes; 0 or -ENOMEM.
cdef int log_set_segments(Log *log, Segment **items, int32_t count) noexcept nogil

# --- without it ---
cdef void log_set_config(Log *log, LogConfig *config) noexcept nogil  # takes the count over
cdef LogConfig *log_hold_config(Log *log) noexcept nogil
cdef SegmentList *log_hold_segments(Log *log) noexcept nogil  # NULL while lazy
cdef void segments_release(SegmentList *list) noexcept nogil
cdef void log_wake_blocked(Log *log, int why) noexcept nogil
cdef void log_wake_changed(Log *log, int why) noexcept nogil  # calls on_change until no waiter is left
cdef LogDir *log_dir(const Log *log) noexcept nogil
# The directory failed: takes it offline and wakes the waiters of this log.
cdef void log_fail(Log *log, int error) noexcept nogil
# As above, for work that began when the log was in `dir`; the log may have moved meanwhile.
cdef void log_fail_in(Log *log, LogDir *dir, int error) noexcept nogil
