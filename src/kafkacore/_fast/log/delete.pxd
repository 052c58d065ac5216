"""Deletion: removes records from the start of a log (DeleteRecords, retention). May block: pool threads, or a thread of
your own.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter

# Hides the records below `offset` from readers, and drops segments that hold no other records. 0 or Kafka's error code.
cdef int log_advance_start(Log *log, int64_t offset) noexcept nogil
# Retention by time and size as configured, below `high_watermark`: returns how many it deleted, LOG_BLOCKED
# (the active segment is due too and rolls first; `blocked` is queued), or -KAFKA_STORAGE_ERROR.
cdef int log_delete_old(Log *log, int64_t high_watermark, Waiter *blocked) noexcept nogil
