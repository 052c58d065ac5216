"""Prepares a log for appends: creates its first files, or opens the files of its last segment, which are
closed after a load.

A log has no files before its first append or its first full truncation. A thread of the I/O pool (io.pxd) opens up to
64 logs together: it creates their files, and syncs the log directory once for all of them. So the partition's
directory, partition.metadata, leader-epoch-checkpoint and the name of the first segment are durable before the first
append is acknowledged.

Call all functions except `log_open_now` with `Log.lock` held.
"""

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Changes the state from LAZY to OPENING. Queues the waiter `blocked` and returns LOG_BLOCKED, or changes nothing and
# returns an error that clients retry.
cdef int log_start_open(Log *log, Waiter *blocked) noexcept nogil
# Creates the files on the caller's thread, which has changed the state from LAZY to OPENING and does not hold the lock.
# If no file descriptor is free, waits up to 30 s for one. Returns 0 with the state ROLLING, or -errno with the state
# still OPENING. If the log failed in the meantime, its state stays FAILED.
cdef int log_open_now(Log *log) noexcept nogil
# Changes the state from OPEN to ROLLING, and submits a job that opens the files of the last segment. They are closed
# after a load. Returns the same values as `log_start_open`.
cdef int log_start_wake(Log *log, Waiter *blocked) noexcept nogil
# Calls `log_start_open` or `log_start_wake` if the next append would otherwise have to wait for that. If a request with
# many partitions must wait for one log, the request calls this for the other logs, so that they are opened together.
cdef void log_open_ahead(Log *log) noexcept nogil
