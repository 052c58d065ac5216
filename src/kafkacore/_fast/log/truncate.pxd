"""Truncation: removes records from the end of a log.

`log_truncate_to` and `log_truncate_fully` can block, so call them on a thread of the I/O pool (io.pxd) or on another
thread that may block. If the log is being opened or rolled, they queue the waiter `blocked` and return LOG_BLOCKED.
Call them again when `blocked` is woken. "The lock" is `Log.lock`.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment
from kafkacore._fast.wait.park cimport Waiter

# Decides whether a truncation may happen. The truncation calls `may(log, epoch)` under the lock when it begins, and
# again before it removes the first record. `may` returns 0, or the error code with which the truncation must fail.
ctypedef struct Fence:
    int (*may)(Log *log, int32_t epoch) noexcept nogil
    int32_t epoch

# Truncates the log to `offset`. A batch that contains `offset` is removed as a whole. Returns 0, LOG_BLOCKED,
# KAFKA_STORAGE_ERROR, or the error code of `fence`. `fence` may be NULL if no other thread writes the log.
cdef int log_truncate_to(Log *log, int64_t offset, const Fence *fence, Waiter *blocked) noexcept nogil
# Removes all records and begins the log again at `offset`, with an empty segment. After a restart, the segment's name
# shows where the log starts, so a log without files gets its files now (open.pxd). A follower does this if the leader's
# log starts above the end of the follower's log.
cdef int log_truncate_fully(Log *log, int64_t offset, const Fence *fence, Waiter *blocked) noexcept nogil

# Ends the wait of a log that was truncated below its checkpointed recovery point or log start offset. If a thread has
# declared that it writes checkpoints (`LogDir.cuts`), such a log stays ROLLING, and its appends wait. When the
# checkpoint files have the new offsets, that thread calls this function, without the lock. Releases a reference to the
# log.
cdef void log_checkpointed(Log *log) noexcept nogil

# Call this with the lock held. In state OPEN, stops appends and rolls until `log_end_change`. Returns 0, LOG_BLOCKED or
# KAFKA_STORAGE_ERROR.
cdef int log_begin_change(Log *log, Waiter *blocked) noexcept nogil
# Ends a change that `log_begin_change` began. Call this without the lock. A negative `result` takes the directory
# offline. Returns `result`, or KAFKA_STORAGE_ERROR.
cdef int log_end_change(Log *log, int result) noexcept nogil
# Call this with the lock held. Keeps only the items [first, end) of the list of segments, and appends `extra`, unless
# `extra` is NULL. Takes over the reference to `extra`. Returns 0 or -ENOMEM.
cdef int log_keep_segments(Log *log, int32_t first, int32_t end, Segment *extra) noexcept nogil
