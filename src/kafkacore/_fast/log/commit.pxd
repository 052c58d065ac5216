"""The group commit of a log: a committer, a thread of the log directory (io.pxd), syncs the log once for all appends
that wait for a sync. "The lock" is `Log.lock`.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment

cdef void log_commit_init(Log *log) noexcept nogil  # call this once, before the log is used

# --- call these with the lock held ---
# Requests that the log's next commit syncs all records below `offset`, or below the log end offset if that is smaller.
# Call `log_call_committer` afterwards.
cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil
# Returns the offset at which recovery after a crash must begin: the synced offset, or a lower one if the files of an
# earlier segment have not been synced since that segment was sealed. This lower offset is the base offset of that
# segment.
cdef int64_t log_recovery_point(const Log *log) noexcept nogil

# --- call these without the lock ---
cdef void log_call_committer(Log *log) noexcept nogil
cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil  # `log_want_synced`, `log_call_committer`
# Syncs the segment's files, and the producer snapshot at `next_base`. `next_base` is the base offset of the next
# segment, or -1 if this segment is the last one. `cuts` is the value that `log.cuts` had before the caller chose the
# segment. Can block. Returns 0 or -errno.
cdef int log_sync_segment(Log *log, Segment *segment, int64_t next_base, int64_t cuts) noexcept nogil
