"""Prepares a log for appends: makes its first files, or opens the last segment, which a load left closed.

A log has no files before its first append. Pool threads open logs together: they make the files of up to 64 logs and
sync the log directory once for all of them. Before the first append is acknowledged, the directory of the partition,
partition.metadata, leader-epoch-checkpoint and the name of the first segment survive a power loss.

All under the lock.
"""

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# LAZY -> OPENING. Returns LOG_BLOCKED with `blocked` queued, or an error that clients retry; then nothing has changed.
cdef int log_start_open(Log *log, Waiter *blocked) noexcept nogil
# OPEN -> ROLLING: opens the last segment, which a load left closed.
cdef int log_start_wake(Log *log, Waiter *blocked) noexcept nogil
# Starts one of these two changes if the next append would have to wait for it. A request with many partitions calls
# this for all of them first, so that their logs open together.
cdef void log_open_ahead(Log *log) noexcept nogil
