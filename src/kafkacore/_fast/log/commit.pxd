"""The group commit of a log: one sync serves all appends that wait for a sync. A committer, which is a thread of the
log directory (io.pxd), performs the sync. "The lock" is `Log.lock`.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment

cdef void log_commit_init(Log *log) noexcept nogil  # call this once, before the log is used

# --- call these with the lock held ---
# Makes the log's next commit sync all records below `offset`, or below the log end offset if that is smaller.
# Call `log_call_committer` afterwards.
cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil
# Returns the offset at which recovery after a crash must begin. This is the synced offset, or the base offset of an
# earlier segment whose files have not been synced since it was sealed.
cdef int64_t log_recovery_point(const Log *log) noexcept nogil

# --- call these without the lock ---
cdef void log_call_committer(Log *log) noexcept nogil
cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil  # calls `log_want_synced` and `log_call_committer`
# Syncs the segment's files, and the producer snapshot at `next_base`. `next_base` is the base offset of the next
# segment, or -1 if this segment is the last one. `cuts` is the value that `log.cuts` had before the caller chose the
# segment. Can block. Returns 0 or -errno.
cdef int log_sync_segment(Log *log, Segment *segment, int64_t next_base, int64_t cuts) noexcept nogil
