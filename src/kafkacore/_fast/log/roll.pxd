"""Rolls: the active segment is sealed and a new one takes the appends. Under the lock; the work is a pool job."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# OPEN -> ROLLING; the new segment begins at `base_offset`. LOG_BLOCKED with `blocked` queued, or an error that clients
# retry.
cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil
# Reserves disk blocks ahead of a large active segment, soon.
cdef void log_reserve_ahead(Log *log) noexcept nogil
cdef int64_t log_preallocated_bytes(Log *log) noexcept nogil  # of a new segment's file; without the lock
