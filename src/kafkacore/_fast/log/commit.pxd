"""The group commit of a log: the committer of its directory syncs the log once for all appends that wait for a sync."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment

cdef void log_commit_init(Log *log) noexcept nogil  # once, before the log is used

# --- under the lock ---
# The committer's next round syncs everything up to `offset` or the log's end, once log_call_committer is called.
cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil
# The offset at which recovery after a crash must begin: the synced offset, or the start of an earlier segment whose
# files no sync has covered since it was sealed.
cdef int64_t log_recovery_point(const Log *log) noexcept nogil

# --- without the lock ---
cdef void log_call_committer(Log *log) noexcept nogil
cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil  # both
# Syncs the segment's files and the producer snapshot at the base offset of the next segment (-1: this is the last).
# `cuts` is log.cuts as read before the caller chose the segment. May block; 0 or -errno.
cdef int log_sync_segment(Log *log, Segment *segment, int64_t next_base, int64_t cuts) noexcept nogil
