"""The compaction of a log, in three steps (Kafka's Cleaner). The first step reads the dirty segments, which no earlier
compaction has read, and adds their keys to the offset map (offset_map.pxd). The second step copies the segments in
groups, and leaves out each record whose key has a later offset in the map. The third step replaces each group by its
copy.

`compaction_map` and `compaction_copy` return after about `max_bytes`, so that the caller can let other work run, limit
the rate, or stop. They read and write files, and hold `Log.lock` only for short times. Only one thread at a time may
call them.
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
    COMPACTION_SWAP = 2       # a result of `compaction_copy`: a group has been copied, so call `compaction_swap`

ctypedef struct Compaction:
    Log *log                  # borrowed: the caller holds the reference
    LogConfig *config
    SegmentList *list         # the segments of the log when the compaction began; NULL for each replaced segment
    int64_t truncations
    int64_t first_dirty
    int64_t upper_bound       # the base offset of a segment; the compaction covers the segments below it
    int64_t end_offset        # after the first step, the map covers the records below this offset
    int64_t old_horizon_ms    # segments modified after this time keep their tombstones of magic 0 and 1
    Compactor compactor
    SeenTransactions transactions
    LastBatches last
    AbortedTransaction *aborted
    int64_t aborted_count
    # The transaction index of the new segment: the group's aborted transactions that are still needed.
    Writer index
    # The segment that is being read. `block` holds its bytes from position `block_at` on.
    int32_t at
    int64_t position
    uint8_t *block
    int64_t block_room
    int64_t block_at
    int64_t block_held
    # The group consists of the segments [first, end) of the list. `fresh` is the segment that replaces them.
    int32_t first
    int32_t end
    Segment *fresh
    int64_t fresh_end         # the end of the last batch in `fresh`
    uint8_t *out
    int64_t out_room
    int64_t out_held
    int64_t swapped           # the number of groups that have been replaced
    int64_t mapped_bytes
    int64_t read_bytes
    int64_t written_bytes
    Segment *bad_segment      # the segment with the bytes that are not a valid batch

# Begins a compaction. `map` must be empty and large enough. `map` and `log` must outlive the compaction. Returns 0 or
# -errno. Call `compaction_close` even after an error.
cdef int compaction_open(Compaction *c, Log *log, OffsetMap *map, int64_t first_dirty, int64_t upper_bound,
                         int64_t now_ms, int64_t delete_retention_ms, int64_t buffer_bytes) noexcept nogil
# Returns COMPACTION_DONE, COMPACTION_MORE or -errno. -ECANCELED: the log was truncated, moved or closed. -EILSEQ: some
# bytes are not a valid batch. -ENOBUFS: the keys of one batch do not fit into the map. Any other error comes from
# memory allocation or from the disk.
cdef int compaction_map(Compaction *c, int64_t max_bytes) noexcept nogil
# Returns the values of `compaction_map`, or COMPACTION_SWAP. -EFBIG and -EOVERFLOW: the copy outgrew its file or its
# index.
cdef int compaction_copy(Compaction *c, int64_t max_bytes) noexcept nogil
# Returns 0, LOG_BLOCKED or -errno, like `swap_in` (swap.pxd).
cdef int compaction_swap(Compaction *c, Waiter *blocked) noexcept nogil
cdef void compaction_close(Compaction *c) noexcept nogil  # removes the files of an unfinished group; may block
