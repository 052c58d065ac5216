"""Appends the records of a leader to the log, and moves the log's high watermark and start to the leader's."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Followed

# `size` may be 0. While the log opens or rolls, the records are copied and wait; until they are appended, the partition
# is not fetched.
cdef void take_records(Followed *each, const uint8_t *data, size_t size, int64_t high_watermark,
                       int64_t log_start_offset) noexcept nogil
# Call it when the log is ready. Appends the records that waited, or continues fetching.
cdef void take_kept(Followed *each) noexcept nogil
# Handles the error when this broker could not apply the leader's answer.
cdef void take_error(Followed *each, int error) noexcept nogil
