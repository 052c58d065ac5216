"""The compaction of a log, in three steps (Kafka's Cleaner). The keys of the dirty segments go into the offset map. The
segments are copied in groups, without the records whose key has a later offset in the map. Each copy replaces its
group.

`compaction_map` and `compaction_copy` return after about `max_bytes`, so that their caller can give way, keep to a rate
or stop. They read and write files and take the log's lock for short times. One thread at a time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.compact.batch cimport Compactor
from kafkacore._fast.compact.state cimport LastBatches, SeenTransactions
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.log cimport Log, LogConfig, SegmentList
from kafkacore._fast.compact.offset_map cimport OffsetMap
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.segment cimport Segment
from kafkacore._fast.log.txn_index cimport AbortedTransaction

cdef enum:
    COMPACTION_DONE = 0
    COMPACTION_MORE = 1
    COMPACTION_SWAP = 2       # compaction_copy: a group is ready for compaction_swap

ctypedef struct Compaction:
    Log *log                  # the caller's count
    LogConfig *config
    SegmentList *list         # the log when this began; NULL where a group was replaced
    int64_t truncations
    int64_t first_dirty
    int64_t upper_bound       # the base offset of a segment: the segments below it are compacted
    int64_t end_offset        # the map covers the records below it, once it is made
    int64_t old_horizon_ms    # segments modified later keep their tombstones of magic 0 and 1
    Compactor compactor
    SeenTransactions transactions
    LastBatches last
    AbortedTransaction *aborted
    int64_t aborted_count
    Writer index              # of the group's transactions that stay aborted
    # The segment that is being read, and its bytes from `block_at` on.
    int32_t at
    int64_t position
    uint8_t *block
    int64_t block_room
    int64_t block_at
    int64_t block_held
    # The group, [first, end) of the list, and what it becomes.
    int32_t first
    int32_t end
    Segment *fresh
    int64_t fresh_end         # behind its last batch
    uint8_t *out
    int64_t out_room
    int64_t out_held
    int64_t swapped           # groups
    int64_t mapped_bytes
    int64_t read_bytes
    int64_t written_bytes
    Segment *bad_segment      # the segment with bytes that are no batch

# `map` is empty and large enough; it and `log` outlive the compaction. 0 or -errno; call compaction_close after either.
cdef int compaction_open(Compaction *c, Log *log, OffsetMap *map, int64_t first_dirty, int64_t upper_bound,
                         int64_t now_ms, int64_t delete_retention_ms, int64_t buffer_bytes) noexcept nogil
# COMPACTION_DONE, COMPACTION_MORE; or -errno. -ECANCELED: the log was truncated, moved or closed; -EILSEQ: bytes that
# are no batch; -ENOBUFS: the keys of one batch do not fit into the map; any other: memory, or the disk.
cdef int compaction_map(Compaction *c, int64_t max_bytes) noexcept nogil
# As compaction_map, and COMPACTION_SWAP. -EFBIG, -EOVERFLOW: the copy outgrew its file or its index.
cdef int compaction_copy(Compaction *c, int64_t max_bytes) noexcept nogil
cdef int compaction_swap(Compaction *c, Waiter *blocked) noexcept nogil  # 0, LOG_BLOCKED or -errno, as swap_in
cdef void compaction_close(Compaction *c) noexcept nogil  # removes the files of an unfinished group; may block
