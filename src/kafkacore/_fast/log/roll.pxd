"""Rolls a log: seals the active segment and makes a new one for the appends. Call under the lock; a pool job does the
work."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# OPEN -> ROLLING; the new segment begins at `base_offset`. LOG_BLOCKED with `blocked` queued, or an error that clients
# retry.
cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil
# Submits a job that reserves disk blocks ahead of a large active segment.
cdef void log_reserve_ahead(Log *log) noexcept nogil
cdef int64_t log_preallocated_bytes(Log *log) noexcept nogil  # of a new segment's file; without the lock
