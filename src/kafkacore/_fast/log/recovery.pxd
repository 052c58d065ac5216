"""Loading a log from its directory: after a clean shutdown, or with recovery from the recovery point (LogLoader,
LogSegment.recover).

Without the GIL and on any thread that may block; several logs at once.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log

cdef enum:
    FILE_HAS_INDEXES = 1  # .index and .timeindex are there
    FILE_HAS_ABORTED = 2  # so is .txnindex

ctypedef struct LoadPlan:
    const int64_t *base_offsets      # of the .log files, ascending
    const int32_t *files             # FILE_ bits of each
    int32_t count
    const int64_t *snapshots         # offsets of the producer snapshots, ascending
    int32_t snapshot_count
    int64_t log_start_offset         # as checkpointed; 0 when it was not
    int64_t recovery_point           # likewise
    int64_t trusted_until            # records below were committed: damage to them is refused, and never cut off
    int64_t gaps_until               # compaction may have left gaps in the offsets below
    bint clean                       # the node was shut down in order
    bint at_rest                     # no file stays open until the first append, even after a recovery
    int64_t *progress                # atomic: bytes looked through so far
    int64_t *segments_done           # atomic: segments, likewise
    int64_t *segments_left           # atomic: segments of this log that remain to be checked

ctypedef struct LoadReport:
    int64_t recovered_bytes
    int64_t truncated_bytes
    int32_t recovered_segments
    int32_t dropped_segments
    int64_t damaged_offset           # with -EUCLEAN: where the damage begins, as an offset,
    int64_t damaged_segment          # the base offset of a segment,
    int64_t damaged_at               # and a byte in that segment

# Loads a LAZY log, which becomes OPEN. With an empty plan it stays LAZY and begins at the log start offset. 0 or -errno
# (-EINVAL: the leader-epoch-checkpoint is malformed; -EOVERFLOW: a segment has an offset that its index cannot hold,
# KAFKA-6264; -EUCLEAN: the log is damaged below `trusted_until`, and no record was removed).
cdef int log_load(Log *log, const LoadPlan *plan, LoadReport *report) noexcept nogil
