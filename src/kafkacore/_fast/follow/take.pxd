"""Records of a leader go into the log; the log's high watermark and start follow the leader's."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Followed

# `size` may be 0. Records for a log that opens or rolls are copied, and appended when it is ready; the partition is
# fetched no further until then.
cdef void take_records(Followed *each, const uint8_t *data, size_t size, int64_t high_watermark,
                       int64_t log_start_offset) noexcept nogil
# The log is ready: appends what waited, or goes on.
cdef void take_kept(Followed *each) noexcept nogil
# This broker could not do what the leader's answer demands.
cdef void take_error(Followed *each, int error) noexcept nogil
