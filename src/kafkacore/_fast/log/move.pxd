"""Moves a log to another log directory while it is in use (KIP-113). The caller fills a future log from the current
log. Then the future log replaces the current log in the same Partition. Holders of the partition, its clients and its
waiters notice only a short wait.

The replacement has four steps, between which the caller works on the disk: `log_hold_still` (from then on appends wait,
as during a roll), `log_copy` for the remaining records, `log_adopt` to use the files in the new directory, and
`log_go_on`. All of these functions may block. Do not call them on the thread of an event loop, or while you hold the
GIL.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.sleeper cimport Sleeper

# Copies to `into` about `max_bytes` of the records of `source` that `into` lacks. Returns the number of copied bytes,
# or 0 if `into` has all records. Returns -errno or -(a Kafka error code) after an error. `into` begins at the offset at
# which `source` begins. It gets files as soon as `source` has some.
cdef int64_t log_copy(Partition *source, Partition *into, int64_t max_bytes, Sleeper *sleeper) noexcept nogil

# Call this between `log_hold_still` and `log_go_on`, when both logs end at the same offset. `fresh` was loaded from the
# files of a future log after that log was shut. `log` takes over the directory and the segments of `fresh`, and `fresh`
# gets the former directory and segments of `log`. The producers, leader epochs and log start offset of `log` stay.
# Returns 0, KAFKA_STORAGE_ERROR or LOG_BLOCKED.
cdef int log_adopt(Log *log, Log *fresh, Waiter *blocked) noexcept nogil
