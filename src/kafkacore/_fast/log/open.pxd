"""What a log has done for it on pool threads: its first append's files, rolls, syncs, the leader-epoch checkpoint."""

from libc.stdint cimport int64_t
from libc.stddef cimport size_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.segment cimport Segment

# --- under the lock ---
# LAZY -> OPENING or OPEN -> ROLLING (the new segment begins at `base_offset`), as a pool job. LOG_BLOCKED: `blocked` is
# queued and will be woken. Else an error that clients retry, and nothing has changed.
cdef int log_start_open(Log *log, Waiter *blocked) noexcept nogil
cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil
# The same for a log whose last segment was left on disk by a load, before its first append.
cdef int log_start_wake(Log *log, Waiter *blocked) noexcept nogil
# Whether the checkpoint file lacks what is worth its syncs.
cdef bint log_epochs_wanted(const Log *log) noexcept nogil
# Then it follows the entries, soon.
cdef void log_save_epochs(Log *log) noexcept nogil

# Blocks ahead of a large active segment, soon.
cdef void log_reserve_ahead(Log *log) noexcept nogil

# The committer's next round syncs all up to `offset`, once it is called.
cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil
# Where a recovery after a crash must begin: at the synced offset, or before it at the first segment that was sealed
# since its bytes were synced.
cdef int64_t log_recovery_point(const Log *log) noexcept nogil

# --- without the lock ---
cdef void log_commit_init(Log *log) noexcept nogil  # once, before the log is used
cdef void log_call_committer(Log *log) noexcept nogil
# Both.
cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil
# May block: the segment's files, and the producer snapshot at the base offset of the next one (-1: it is the last).
# `cuts` is the log's before. 0 or -errno.
cdef int log_sync_segment(Log *log, Segment *segment, int64_t next_base, int64_t cuts) noexcept nogil
