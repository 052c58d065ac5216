"""The state of a load, and producer state rebuilt from a log's snapshots and batches (ProducerStateManager's
truncateAndReload, UnifiedLog.rebuildProducerState).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.producers cimport Producers
from kafkacore._fast.record.record cimport BatchHeader
from kafkacore._fast.log.segment cimport Segment

# No other thread uses the log until the load is done.
ctypedef struct Load:
    Log *log
    char *path
    const int64_t *snapshots         # offsets of the producer snapshots on disk, ascending
    int32_t snapshot_count
    int64_t snapshots_end            # snapshots behind this offset are not trusted
    int64_t log_start_offset         # as checkpointed
    Segment **segments
    int32_t count
    bint *recovered                  # for each segment, whether its indexes were rebuilt; NULL: no segment's were
    Producers *producers
    int64_t state_offset             # `producers` has the state below it; -1: none yet
    int64_t snapshot_offset          # of the newest snapshot that was read or written; -1: none
    int64_t last_aborted_offset
    uint8_t *block
    int64_t block_bytes

cdef enum:
    LOAD_BLOCK_BYTES = 1 << 19

# Where the log begins: the checkpoint, or the first segment behind it.
cdef int64_t load_start(const Load *load) noexcept nogil

# Replays a batch of segment `i`, which is in memory: updates its producer and, for a rebuilt segment, the transaction
# index.
cdef int replay_batch(Load *load, int32_t i, const uint8_t *batch, const BatchHeader *header) noexcept nogil

# Restores the producers as of `offset`: from the newest readable snapshot below it (unreadable ones are removed), and
# from the batches behind that. 0 or -errno; -EILSEQ where the bytes are no batches.
cdef int replay_to(Load *load, int64_t offset) noexcept nogil

# Saves the state as the snapshot of the segment that begins at `state_offset`.
cdef int replay_save(Load *load) noexcept nogil

# Removes snapshots that belong to no segment, except the newest one of a clean shutdown. Also removes snapshots outside
# the log, because other records may get the offsets that were cut off (removeStraySnapshots).
cdef int replay_drop_strays(Load *load, int64_t end_offset) noexcept nogil

# Rebuilds the producer state as of `end_offset`, where the log now ends, from the snapshots that are left and the
# batches behind them. No append may run meanwhile. 0 or -errno.
cdef int log_replay_producers(Log *log, int64_t end_offset) noexcept nogil
