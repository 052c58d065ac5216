"""Ends a log's work on its files. May block: pool threads, or a thread of your own."""

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Under the lock: whether a job other than opening or rolling works on the log's files. When such a job ends it wakes
# the blocked waiters.
cdef bint log_has_jobs(const Log *log) noexcept nogil
# The last step of an orderly shutdown: syncs a producer snapshot, the indexes and all records; no append follows. 0,
# LOG_BLOCKED or -errno.
cdef int log_shut(Log *log, Waiter *blocked) noexcept nogil
# Ends all work on the log's files, so that its directory may be renamed or removed; saves nothing. 0 or LOG_BLOCKED.
cdef int log_stop(Log *log, Waiter *blocked) noexcept nogil
