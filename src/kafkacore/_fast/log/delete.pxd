"""Deletes records from the start of a log (DeleteRecords, retention). The functions can block, so call them on a thread
of the I/O pool (io.pxd) or on another thread that may block. "The lock" is `Log.lock`.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Hides the records below `offset` from readers, and drops the segments that hold no other records. Returns 0 or a Kafka
# error code.
cdef int log_advance_start(Log *log, int64_t offset) noexcept nogil
# The two steps of `log_advance_start`, for a caller that must check a condition and hide the records under one hold of
# the lock. Call `log_hide_below` with the lock held. It does not block, and changes nothing if it returns an error
# code. Call `log_drop_hidden` without the lock. If another thread is dropping segments, that thread also drops these.
# If no file descriptor is free, `log_drop_hidden` waits for one for up to 30 s and then takes the directory offline.
cdef int log_hide_below(Log *log, int64_t offset) noexcept nogil
cdef int log_drop_hidden(Log *log) noexcept nogil
# Deletes the segments below `high_watermark` that exceed the configured retention by time or size, and the hidden
# segments that could not be dropped earlier. Returns the number of deleted segments or -KAFKA_STORAGE_ERROR. If the
# active segment must be deleted too, the log must roll first. In that case, queues the waiter `blocked` and returns
# LOG_BLOCKED.
cdef int log_delete_old(Log *log, int64_t high_watermark, Waiter *blocked) noexcept nogil
