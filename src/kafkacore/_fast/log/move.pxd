"""Moves a log to another log directory while it is in use (KIP-113). The caller copies the current log to a future log,
which is in the other directory. Then the current log takes over the files of the future log, in the same `Partition`.
Code that holds a reference to the partition, and clients and waiters of the partition, notice only a short wait.

The replacement has four steps: `log_hold_still` (from then on appends wait, as during a roll), `log_copy` for the
remaining records, `log_adopt` to use the files in the new directory, and `log_go_on`. Between the steps, the caller
syncs and renames files. All of these functions may block. Do not call them on the thread of an event loop, or while you
hold the GIL.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.sleeper cimport Sleeper

cdef enum:
    LOG_TRUNCATED = -0x10000  # below every -errno and every -(Kafka error code)

# Copies from `source` about `max_bytes` bytes of records that `into` lacks. Returns the number of copied bytes, or 0 if
# `into` has all records. Returns -errno or -(a Kafka error code) after an error. `into` begins at the offset at which
# `source` begins. `into` gets files as soon as `source` has files. `sleeper` is the caller's means of waiting
# (sleeper.pxd). The caller first reads the field `truncations` of `source`, then removes from `into` the records that
# `source` no longer has, and passes the value that it read. If `source` was truncated since then, returns
# LOG_TRUNCATED. `into` then has a prefix of the records that `source` had before that truncation.
cdef int64_t log_copy(Partition *source, Partition *into, int64_t truncations, int64_t max_bytes,
                      Sleeper *sleeper) noexcept nogil

# Call this between `log_hold_still` and `log_go_on`, when both logs end at the same offset. `fresh` is the future log:
# it was shut and then loaded again. `log` and `fresh` exchange their directories and segments. `log` keeps its
# producers, leader epochs and log start offset. Returns 0, KAFKA_STORAGE_ERROR, or LOG_BLOCKED with the waiter
# `blocked` queued.
cdef int log_adopt(Log *log, Log *fresh, Waiter *blocked) noexcept nogil
