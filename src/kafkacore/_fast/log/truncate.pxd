"""Truncation: removes records from the end of a log.

Both functions may block: call them on a pool thread, or on a thread of your own. LOG_BLOCKED: the log opens or rolls;
`blocked` is queued, and the caller calls again when it is woken.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment
from kafkacore._fast.wait.park cimport Waiter

# Asked under the lock, before the truncation begins and again before the first record goes: 0, or the error code that
# refuses it.
ctypedef struct Fence:
    int (*may)(Log *log, int32_t epoch) noexcept nogil
    int32_t epoch

# Cuts the log so that it ends at `offset`; a batch that holds `offset` is removed whole. 0, LOG_BLOCKED,
# KAFKA_STORAGE_ERROR, or the error code of `fence` (NULL: the caller alone writes the log).
cdef int log_truncate_to(Log *log, int64_t offset, const Fence *fence, Waiter *blocked) noexcept nogil
# Drops all records and begins anew at `offset`, as a follower does when its leader's log starts after its own end.
cdef int log_truncate_fully(Log *log, int64_t offset, const Fence *fence, Waiter *blocked) noexcept nogil

# A truncation below the recovery point in the checkpoint file leaves the log ROLLING, if a thread has said that it
# writes that file (`LogDir.cuts`). Call this without the lock when the file has a lower one; it releases a count
# of the log.
cdef void log_checkpointed(Log *log) noexcept nogil

# Under the lock: from OPEN, stops appends and rolls until `log_end_change`. 0, LOG_BLOCKED or KAFKA_STORAGE_ERROR.
cdef int log_begin_change(Log *log, Waiter *blocked) noexcept nogil
# Without the lock; a `result` below zero takes the directory offline. `result`, or KAFKA_STORAGE_ERROR.
cdef int log_end_change(Log *log, int result) noexcept nogil
# Under the lock: reduces the list to its items [first, end) and adds `extra` (may be NULL), whose count it takes over.
cdef int log_keep_segments(Log *log, int32_t first, int32_t end, Segment *extra) noexcept nogil
