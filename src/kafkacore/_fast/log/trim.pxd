"""What takes records away: truncation at the end, deletion at the start, and the end of a log itself.

All may block: pool threads, or a thread of one's own. What needs the log to itself says LOG_BLOCKED with `blocked`
queued, to be called again, while the log opens or rolls.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Cuts the log so that it ends at `offset` (a batch that holds it goes whole). 0, LOG_BLOCKED or KAFKA_STORAGE_ERROR.
cdef int log_truncate_to(Log *log, int64_t offset, Waiter *blocked) noexcept nogil
# Drops all and begins anew at `offset`, as a follower does whose leader's log starts behind its own end.
cdef int log_truncate_fully(Log *log, int64_t offset, Waiter *blocked) noexcept nogil

# Records below `offset` are gone for readers; segments that hold nothing else are dropped. 0 or Kafka's error code.
cdef int log_advance_start(Log *log, int64_t offset) noexcept nogil
# Retention by time and size as configured, below `high_watermark`: how many segments went (at least 0), LOG_BLOCKED
# (the active one is due too and is rolled first), or -KAFKA_STORAGE_ERROR.
cdef int log_delete_old(Log *log, int64_t high_watermark, Waiter *blocked) noexcept nogil

# Under the lock: whether a job beside the one that opens or rolls works on its files; each wakes who is blocked when it
# ends.
cdef bint log_has_jobs(const Log *log) noexcept nogil

# The last act of an orderly shutdown: producer snapshot, indexes and all bytes on disk; no more appends. 0,
# LOG_BLOCKED, -errno.
cdef int log_shut(Log *log, Waiter *blocked) noexcept nogil
# No more work on its files from now on, so that its directory may be renamed or removed; nothing is saved. 0 or
# LOG_BLOCKED.
cdef int log_stop(Log *log, Waiter *blocked) noexcept nogil
