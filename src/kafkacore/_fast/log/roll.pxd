"""Rolls a log: seals the active segment and creates a new one for the appends. A job on a thread of the I/O pool
(io.pxd) does the work. Call the first two functions with `Log.lock` held.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Changes the state from OPEN to ROLLING. The new segment begins at `base_offset`. Returns LOG_BLOCKED with the waiter
# `blocked` queued, or an error that clients retry.
cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil
# Submits a job that reserves disk blocks for the future bytes of a large active segment.
cdef void log_reserve_ahead(Log *log) noexcept nogil
# Returns the number of bytes to reserve for a new segment's file. Call this without the lock.
cdef int64_t log_preallocated_bytes(Log *log) noexcept nogil
