"""Appends a leader's records to the log of a followed partition, and moves the log's high watermark and start offset to
the leader's values.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from kafkacore._fast.follow.followed cimport Followed

# Appends `size` bytes of records; `size` may be 0. If the log is being opened or rolled, keeps a copy of the records,
# and the fetcher does not fetch the partition until the log has these records.
cdef void take_records(Followed *each, const uint8_t *data, size_t size, int64_t high_watermark,
                       int64_t log_start_offset) noexcept nogil
# Call this when the log is ready. Appends the records that were kept, or lets the partition fetch again.
cdef void take_kept(Followed *each) noexcept nogil
# Handles the error of a failed attempt to apply the leader's answer.
cdef void take_error(Followed *each, int error) noexcept nogil
