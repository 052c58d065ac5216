"""A fetcher (followed.pxd) follows the partitions that another broker leads. These functions do its work on the logs of
this broker. Each change contains the leader epoch to which it belongs. Under its lock, a partition compares this epoch
with its own epoch, and rejects a change from any other epoch.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Position
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.park cimport Waiter

ctypedef struct Appended:
    size_t bytes            # 0 also if nothing was appended because the first batch's epoch is above the leader's epoch
    int64_t first_offset
    int64_t last_offset

# Sets the position to the current end of the log. Does not change `leader_epoch`.
cdef void local_position(Partition *p, Position *out) noexcept nogil
# Returns whether the log has failed and accepts no more records until a restart.
cdef bint local_has_failed(Partition *p) noexcept nogil
# If flush.messages requires a sync before the next Fetch acknowledges the records below `end_offset`, requests a sync,
# queues the waiter, and returns True. Otherwise returns False. Also returns False if the log has failed.
cdef bint local_awaits_sync(Partition *p, int64_t end_offset, Waiter *waiter) noexcept nogil
# Returns whether this broker now follows the leader of that epoch.
cdef bint local_follows(Partition *p, int32_t leader_epoch) noexcept nogil
# Appends records that a leader sent. Returns 0, LOG_BLOCKED (log.pxd) with the waiter `blocked` queued, or a Kafka
# error code.
cdef int local_append(Partition *p, const uint8_t *data, size_t size, int32_t leader_epoch, Waiter *blocked,
                      Appended *appended) noexcept nogil
# Returns whether the log is empty and begins inside the batch at `data`. If so, the log must begin where the batch
# begins.
cdef bint local_begins_within(Partition *p, const uint8_t *data, size_t size, int64_t *base_offset) noexcept nogil
# Adopts the leader's high watermark and log start offset, limited to the end of this log. Sets `start_is_behind` if
# this log has records below the leader's log start offset. Returns 0 or a Kafka error code.
cdef int local_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                           bint *start_is_behind) noexcept nogil
# Returns the offset to which this log must be truncated (KIP-279). The leader has answered that the logs diverge:
# `epoch` is the leader's largest epoch that is not above the last epoch of this log, and in the leader's log this epoch
# ends at `end_offset`.
cdef int64_t local_divergence(Partition *p, int32_t epoch, int64_t end_offset) noexcept nogil
# Removes the records that `what` selects (CUT_..., see followed.pxd). Call this on a thread of the I/O pool. Returns 0,
# LOG_BLOCKED or a Kafka error code.
cdef int local_cut(Partition *p, int what, int64_t offset, int32_t leader_epoch, Waiter *blocked) noexcept nogil
