"""Moves a log to another directory while it is in use (KIP-113). The caller fills a future log from it; then the future
log takes its place in the same Partition. Holders of the partition, its clients and its waiters notice only a short
wait.

The last part has four steps, between which the caller works on the disk: `log_hold_still` (from then on appends wait,
as during a roll), `log_copy` for the rest, `log_adopt` for the files in their new directory, and `log_go_on`. All of
them may block: do not call them on a loop's thread or with the GIL.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.sleeper cimport Sleeper

# Copies about `max_bytes` that `into` lacks from `source`. Returns the number of bytes, 0 when `into` has everything,
# -errno or -(Kafka's error code). `into` begins where `source` begins, and gets files as soon as `source` has some.
cdef int64_t log_copy(Partition *source, Partition *into, int64_t max_bytes, Sleeper *sleeper) noexcept nogil

# Stops appends, rolls, truncations and jobs on the log's files until `log_go_on`; readers go on. 0,
# KAFKA_STORAGE_ERROR, or LOG_BLOCKED with `blocked` queued: call again when it is woken.
cdef int log_hold_still(Log *log, Waiter *blocked) noexcept nogil
cdef void log_go_on(Log *log) noexcept nogil

# Call it while both logs hold still and end at the same offset. `fresh` was loaded from the files of a future log that
# was shut. `log` takes over the directory and segments of `fresh`, and `fresh` gets the former ones; producers, leader
# epochs and log start of `log` stay. 0, KAFKA_STORAGE_ERROR or LOG_BLOCKED.
cdef int log_adopt(Log *log, Log *fresh, Waiter *blocked) noexcept nogil
