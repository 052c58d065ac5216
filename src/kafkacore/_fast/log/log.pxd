"""A partition's log: its segments, producers, leader epochs and checkpointed offsets, on one log directory.

`lock` guards every field, except those commented "atomic". Threads hold this lock for work in memory and for the writes
of an append to the .log and the indexes. They never hold it during a sync, a roll, an index look-up on disk or a call
into Python. No thread waits for the lock while it holds the GIL.

A log has no files before its first append or its first full truncation (truncate.pxd). The first append changes `state`
from LAZY to OPENING. Then a job in the I/O pool of the log directory (io.pxd) creates the directory, partition.metadata
and the first segment, syncs them, and changes `state` to OPEN. If the state is LAZY, OPENING or ROLLING, an append
writes nothing. Instead, it puts the caller's waiter (park.pxd) on the list `blocked` and returns LOG_BLOCKED. The
caller tries again when its waiter is woken.

Modules: log (life cycle, list of segments, waiters), epochs, append, read, open, roll, commit, truncate, delete, shut,
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
    LOG_FAILED = 4        # the log directory is offline; appends return KAFKA_STORAGE_ERROR
    LOG_CLOSED = 5

# The state of the leader-epoch-checkpoint file.
cdef enum:
    EPOCHS_SAVED = 0      # the file has all entries
    EPOCHS_EMPTY = 1      # the file lacks only epochs without records; each load drops them, so they need no sync yet
    EPOCHS_BEHIND = 2     # the file lacks epochs that have records

cdef enum:
    LOG_BLOCKED = -2000   # nothing has changed; the waiter is queued and will be woken

# A topic's configuration in the form that its logs use. A `LogConfig` is immutable and reference-counted. When the
# configuration changes, a new `LogConfig` replaces the old one.
ctypedef struct LogConfig:
    int32_t refs
    ValidateRules rules                  # compression, timestamps, max.message.bytes, compacted, inflation limits
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int32_t index_interval_bytes
    int32_t segment_index_bytes
    int64_t retention_ms                 # -1 means no limit
    int64_t retention_bytes              # -1 means no limit
    int64_t file_delete_delay_ms
    int64_t flush_messages               # log.flush.interval.messages
    int64_t flush_ms
    bint delete_policy
    bint compact_policy
    bint preallocate
    int32_t producer_id_expiration_ms

# A log's segments in order of their offsets. The list is immutable. A change replaces the whole list, and readers hold
# a reference to the list that they use.
ctypedef struct SegmentList:
    int32_t refs
    int32_t count
    Segment *items[1]     # `count` segments; holds a reference to each

ctypedef struct EpochEntry:
    int32_t epoch
    int64_t start_offset

# The log keeps the positions of recent batches in memory. So a consumer at the end of the log needs neither an index
# nor the disk.
cdef enum:
    RECENT_BATCHES = 64

ctypedef struct RecentBatch:
    int64_t base_offset
    int64_t position

# The newest batches of the active segment, without gaps between them. A roll or a truncation empties the list.
ctypedef struct Recent:
    int32_t first         # the index of the oldest batch
    int32_t count
    RecentBatch batches[RECENT_BATCHES]

ctypedef struct Log:
    Mutex lock
    int32_t state
    LogDir *dir                          # changes when the log moves; without the lock, read it with `log_dir`
    const Clock *clock
    # The log's partition: its topic, its number, and the functions that change its reference count.
    const char *topic
    int32_t topic_size
    int32_t index
    const uint8_t *topic_id              # NULL if no partition.metadata is written (the metadata log)
    void (*hold)(Log *log) noexcept nogil
    void (*release)(Log *log) noexcept nogil
    # The log calls this under the lock, when `synced_offset` has changed or `state` has become FAILED. The function
    # collects the waiters to wake. It returns True if `wakes` is full and it must be called again.
    bint (*on_change)(Log *log, WakeList *wakes) noexcept nogil
    char *suffix                         # the end of the directory's name; NULL unless this is a future log (move.pxd)
    char *path                           # the path of the log's directory; NULL until a load or the first opening
    LogConfig *config
    SegmentList *segments
    Segment *active                      # the last one of `segments`
    int64_t log_start_offset
    int64_t local_log_start_offset
    int64_t end_offset                   # the offset of the next record
    # Counts deletions, truncations, compactions and moves. If this count changes during a look-up, the result of the
    # look-up may be invalid.
    int64_t cuts
    int64_t truncations                  # counts truncations and moves
    int64_t rewinds                      # counts truncations only; after each, other records may get the same offsets
    bint swapping                        # a compaction (compact/swap.pxd) or a truncation is replacing segments now
    bint dropping                        # a thread is deleting segments from the start of the log now
    int64_t synced_offset                # all records below this offset survive a power loss
    int64_t checkpointed_offset          # the checkpoints have no recovery point or log start offset above this one
    int64_t commit_offset                # the next sync by a committer covers the records below this offset
    int64_t unflushed_since_ns           # monotonic; -1 if all records are synced
    int64_t first_unstable_offset        # the first offset of the oldest open transaction; -1 if there is none
    int64_t last_aborted_offset          # atomic; no aborted transaction ends after this offset; -1 if there is none
    int64_t total_bytes                  # atomic; the size of all segments
    int64_t appended_bytes               # atomic; the bytes appended since the node started, for metrics
    EpochEntry *epochs
    int32_t epoch_count
    int32_t epoch_capacity
    int epochs_dirty                     # EPOCHS_SAVED, EPOCHS_EMPTY or EPOCHS_BEHIND
    Producers *producers                 # NULL until a load or the first opening
    Recent *recent                       # NULL until the first append
    int64_t snapshot_offset              # the offset of the newest producer snapshot
    Waiter *blocked                      # appends that wait until the state is OPEN
    Dirty dirty
    Job job                              # opens or rolls the log; one at a time
    int64_t refuse_until_ns              # monotonic; set when a job found no free file descriptor (jobs.pxd), else 0
    int64_t roll_offset                  # the base offset of the segment that the current roll creates
    Job epochs_job
    bint epochs_job_queued
    # The next three fields serve a truncation that waits until its offsets are checkpointed (log/cuts.pyi).
    # `cut_mail` is a message to the thread that writes the checkpoint (mail.pxd).
    Mail cut_mail
    Log *next_cut
    bint awaits_checkpoint
    Job ahead_job                        # reserves disk blocks for a log that grows fast
    bint ahead_job_queued

cdef LogConfig *config_new() noexcept nogil  # returns NULL if memory runs out; `LogSettings` sets the fields
cdef void config_hold(LogConfig *config) noexcept nogil
cdef void config_release(LogConfig *config) noexcept nogil

# Initialises a log in state LAZY that starts at `start_offset`. Takes a new reference to `config`. The caller sets the
# names and the callbacks. Returns 0 or -errno.
cdef int log_init(Log *log, LogDir *dir, const Clock *clock, LogConfig *config, int64_t start_offset) noexcept nogil
cdef void log_destroy(Log *log) noexcept nogil  # call this after the last reference is released; does not sync
cdef int64_t log_now_ms(Log *log) noexcept nogil

# --- call these under the lock ---
cdef char *log_directory_path(const Log *log) noexcept nogil  # malloc'ed "<log dir>/<topic>-<index><suffix>"
cdef void log_block(Log *log, Waiter *waiter) noexcept nogil  # does nothing if `waiter` is NULL
# Returns the last segment whose base offset is at most `offset`, or the first segment if `offset` is below all
# segments. The caller must release the reference. Returns NULL if the log has no segments.
cdef Segment *log_segment_at(const Log *log, int64_t offset) noexcept nogil
cdef void recent_clear(Log *log) noexcept nogil
cdef void recent_add(Log *log, int64_t base_offset, int64_t position) noexcept nogil
# Makes `items` the log's list of segments, takes over their references, and sets `total_bytes`. Returns 0 or -ENOMEM.
cdef int log_set_segments(Log *log, Segment **items, int32_t count) noexcept nogil

# --- call these without the lock ---
cdef void log_set_config(Log *log, LogConfig *config) noexcept nogil  # takes over the reference to `config`
cdef LogConfig *log_hold_config(Log *log) noexcept nogil
cdef SegmentList *log_hold_segments(Log *log) noexcept nogil  # NULL if the log is lazy
cdef void segments_release(SegmentList *list) noexcept nogil
cdef void log_wake_blocked(Log *log, int why) noexcept nogil
cdef void log_wake_changed(Log *log, int why) noexcept nogil  # calls `on_change` until no waiters are left to wake
cdef LogDir *log_dir(const Log *log) noexcept nogil
# Call this after an error of the directory. Takes the directory offline and wakes the waiters of this log.
cdef void log_fail(Log *log, int error) noexcept nogil
# Like `log_fail`, for work that began when the log was in `dir`. If the log has been closed or moved to another
# directory in the meantime, only `dir` goes offline; after an ENOENT, nothing goes offline.
cdef void log_fail_in(Log *log, LogDir *dir, int error) noexcept nogil
