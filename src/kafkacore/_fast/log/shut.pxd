"""Stops a log's work on its files, for a while or for good. The functions can block, so call them on a thread of the
I/O pool (io.pxd) or on another thread that may block. "The lock" is `Log.lock`.
"""

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Returns whether a job other than opening or rolling works on the log's files. When such a job ends, it wakes the
# waiters in `log.blocked`. Call this with the lock held.
cdef bint log_has_jobs(const Log *log) noexcept nogil
# Stops appends, rolls, truncations and jobs on the log's files until `log_go_on`. Reads continue. Returns 0,
# KAFKA_STORAGE_ERROR, or LOG_BLOCKED with the waiter `blocked` queued. In the last case, call this again when `blocked`
# is woken.
cdef int log_hold_still(Log *log, Waiter *blocked) noexcept nogil
cdef void log_go_on(Log *log) noexcept nogil
# Performs the last step of an orderly shutdown: syncs a producer snapshot, the indexes and all records. No append may
# follow. Returns 0, LOG_BLOCKED, -errno, or KAFKA_STORAGE_ERROR if the directory is offline.
cdef int log_shut(Log *log, Waiter *blocked) noexcept nogil
# Ends all work on the log's files without saving anything, so that the directory can be renamed or removed. Returns 0
# or LOG_BLOCKED.
cdef int log_stop(Log *log, Waiter *blocked) noexcept nogil
