"""Rebuilds the state of a log's producers (producers.pxd) when the log is loaded or truncated: reads a snapshot file of
this state, and replays the batches after the snapshot (ProducerStateManager's truncateAndReload,
UnifiedLog.rebuildProducerState).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.producers cimport Producers
from kafkacore._fast.record.record cimport BatchHeader
from kafkacore._fast.log.segment cimport Segment
from kafkacore._fast.world.environment cimport Disk

# The state of a load, or of a replay after a truncation. During a load, no other thread uses the log.
ctypedef struct Load:
    Log *log
    char *path
    const int64_t *snapshots         # the offsets of the producer snapshots on disk, ascending
    int32_t snapshot_count
    int64_t snapshots_end            # snapshots above this offset may be wrong and are not used
    int64_t log_start_offset         # the checkpointed log start offset
    Segment **segments
    int32_t count
    bint *recovered                  # for each segment, whether its indexes were rebuilt; NULL after a truncation
    Producers *producers
    int64_t state_offset             # `producers` has the state below this offset; -1 if there is none yet
    int64_t snapshot_offset          # the offset of the newest snapshot that was read or written; -1 if there is none
    int64_t last_aborted_offset
    uint8_t *block
    int64_t block_bytes
    const int32_t *is_abandoned      # see LoadPlan; NULL after a truncation

cdef enum:
    LOAD_BLOCK_BYTES = 1 << 19

# Returns the offset where the log begins: the checkpointed log start offset, or the base offset of the first segment if
# that is higher.
cdef int64_t load_start(const Load *load) noexcept nogil

# Replays a batch of segment `i`. The batch is in memory. Updates the state of its producer and, for a rebuilt segment,
# the transaction index.
cdef int replay_batch(Load *load, int32_t i, const uint8_t *batch, const BatchHeader *header) noexcept nogil

# Restores the state that the producers had at `offset`, from the newest readable snapshot at or below `offset` and from
# the batches after that snapshot. Removes unreadable snapshots. Returns 0 or -errno; -EILSEQ if some bytes are not a
# batch.
cdef int replay_to(Load *load, int64_t offset) noexcept nogil

# Saves the state as the snapshot of the segment that begins at `state_offset`.
cdef int replay_save(Load *load) noexcept nogil

# Removes a snapshot if it exists. Returns 0 or -errno.
cdef int drop_snapshot(const Disk *disk, const char *directory, int64_t offset) noexcept nogil

# Removes snapshots that belong to no segment, except the newest snapshot of a clean shutdown. Also removes snapshots at
# offsets outside the log, because new records may get these offsets (removeStraySnapshots).
cdef int replay_drop_strays(Load *load, int64_t end_offset) noexcept nogil

# Rebuilds the producer state at `end_offset`, which is now the end of the log, from the remaining snapshots and the
# batches after them. The caller prevents appends meanwhile. Returns 0 or -errno.
cdef int log_replay_producers(Log *log, int64_t end_offset) noexcept nogil
