"""The work of a fetcher on the logs of this broker. Each change names the leader epoch to which it belongs. Under its
lock the partition refuses a change of any other epoch."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Position
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.park cimport Waiter

ctypedef struct Appended:
    size_t bytes            # 0 also when the first batch has a higher epoch than the leader's
    int64_t first_offset
    int64_t last_offset

# Fills in where the log ends now. `leader_epoch` is not changed.
cdef void local_position(Partition *p, Position *out) noexcept nogil
# Whether its log has failed and takes no more records in this run.
cdef bint local_has_failed(Partition *p) noexcept nogil
# Whether this broker follows the leader of that epoch now.
cdef bint local_follows(Partition *p, int32_t leader_epoch) noexcept nogil
# Appends records that a leader sent. Returns 0, LOG_BLOCKED with `blocked` queued, or Kafka's error code.
cdef int local_append(Partition *p, const uint8_t *data, size_t size, int32_t leader_epoch, Waiter *blocked,
                      Appended *appended) noexcept nogil
# Whether the log is empty and begins inside the batch at `data`: then it must begin where the batch begins.
cdef bint local_begins_within(Partition *p, const uint8_t *data, size_t size, int64_t *base_offset) noexcept nogil
# Takes the leader's high watermark and log start, as far as this log reaches. Returns 0 or Kafka's error code.
# `start_is_behind`: this log has records below the leader's start.
cdef int local_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                           bint *start_is_behind) noexcept nogil
# Returns where this log must end if the leader's log has `epoch` up to `end_offset`, but does not have the last epoch
# of this log (KIP-279).
cdef int64_t local_divergence(Partition *p, int32_t epoch, int64_t end_offset) noexcept nogil
# Truncates the log as `what` (CUT_...) says, on an I/O thread. Returns 0, LOG_BLOCKED or Kafka's error code.
cdef int local_cut(Partition *p, int what, int64_t offset, int32_t leader_epoch, Waiter *blocked) noexcept nogil
