"""Loads a log from its directory, either after a clean shutdown, or with recovery from the recovery point (LogLoader,
LogSegment.recover).

Call this without the GIL, on any thread that may block. Several logs can be loaded at the same time.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log

cdef enum:
    FILE_HAS_INDEXES = 1  # .index and .timeindex exist
    FILE_HAS_ABORTED = 2  # .txnindex exists

ctypedef struct LoadPlan:
    const int64_t *base_offsets      # the base offsets of the .log files, ascending
    const int32_t *files             # the FILE_ bits of each .log file
    int32_t count
    const int64_t *snapshots         # the offsets of the producer snapshots, ascending
    int32_t snapshot_count
    int64_t log_start_offset         # the checkpointed log start offset; 0 if there is none
    int64_t recovery_point           # the checkpointed recovery point; 0 if there is none
    # Records below this offset were committed. If they are damaged, the load fails and removes no record.
    int64_t trusted_until
    int64_t gaps_until               # compaction may have left gaps between the offsets below this one
    bint clean                       # the node was shut down cleanly
    bint at_rest                     # even after a recovery, all files stay closed until the first append
    int64_t *progress                # atomic: the number of bytes checked so far
    int64_t *segments_done           # atomic: the number of segments checked so far
    int64_t *segments_left           # atomic: the number of segments of this log that are still to be recovered
    # Atomic. Once this is not 0, the recovery ends before the next segment, and a replay of producers ends at once.
    const int32_t *is_abandoned

ctypedef struct LoadReport:
    int64_t recovered_bytes
    int64_t truncated_bytes
    int32_t recovered_segments
    int32_t dropped_segments
    int64_t damaged_offset           # after -EUCLEAN: the offset at which the damage begins,
    int64_t damaged_segment          # the base offset of the damaged segment,
    int64_t damaged_at               # and the position of the damage in that segment

# Loads a log in state LAZY (log.pxd), and sets its state to OPEN. If `plan` has no segments, the log stays LAZY and
# begins at `plan.log_start_offset`. Returns 0 or -errno. -EINVAL: the leader-epoch-checkpoint is malformed. -EOVERFLOW:
# a segment has an offset that its index cannot hold (KAFKA-6264). -EUCLEAN: the log is damaged below `trusted_until`,
# and no record was removed. -ECANCELED: the load was abandoned, and the next load recovers the remaining segments.
cdef int log_load(Log *log, const LoadPlan *plan, LoadReport *report) noexcept nogil
