"""A log moves to another directory while it is in use (KIP-113): a future log is filled from it, and then takes its
place in the same Partition, so that whoever holds that, leads it or waits for it notices nothing but a short wait.

The last part is four steps, with disk work of the caller's in between: `log_hold_still` (appends wait, as during a
roll), `log_copy` of what is left, `log_adopt` of the files in their new place, and `log_go_on`. All of them may block;
not on a loop's thread and not with the GIL.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.sleeper cimport Sleeper

# Appends to `into` what `source` has and it has not, about `max_bytes` of it: how many, 0 when it has everything, or
# -errno or -(Kafka's error code). It begins where `source` does, and gets files as soon as `source` has some.
cdef int64_t log_copy(Partition *source, Partition *into, int64_t max_bytes, Sleeper *sleeper) noexcept nogil

# No append, no roll, no truncation and no job on its files until `log_go_on`; readers go on. 0, KAFKA_STORAGE_ERROR, or
# LOG_BLOCKED with `blocked` queued, to be called again.
cdef int log_hold_still(Log *log, Waiter *blocked) noexcept nogil
cdef void log_go_on(Log *log) noexcept nogil

# Both hold still, and end at the same offset: `log` goes on with the directory and the segments of `fresh`, which was
# loaded from what a future log was shut as, and `fresh` has the former ones. What `log` knows of producers, leader
# epochs and its beginning stays. 0, KAFKA_STORAGE_ERROR, or LOG_BLOCKED.
cdef int log_adopt(Log *log, Log *fresh, Waiter *blocked) noexcept nogil
