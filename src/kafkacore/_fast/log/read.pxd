"""Reads of a log: the place of a fetch's batches, and offsets by time."""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment

ctypedef struct ReadResult:
    Segment *segment      # counted; NULL when nothing is to be read
    int64_t position
    int64_t size          # 0 at `bound`, or when the first batch is larger than max_bytes
    int64_t first_offset  # base offset of the first batch
    int32_t cuts          # of the segment, when the range was found: another number means other bytes
    bint cached           # a recent range: no need to ask whether it is in the page cache

# Batches from the one that holds `offset` up to `bound` (exclusive), about `max_bytes`: at least one whole batch when
# `min_one`. 0, OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR. Never blocks: when it would have to wait for the disk it
# returns LOG_BLOCKED, and the caller lets the I/O pool call `log_read_slowly`.
cdef int log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                  ReadResult *out) noexcept nogil
cdef int log_read_slowly(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                         ReadResult *out) noexcept nogil

# Pool threads only; both return 0 or Kafka's error code. The first record at or after `timestamp_ms` and below `bound`
# (ListOffsets by time): -1, -1, -1 when there is none.
cdef int log_offset_by_time(Log *log, int64_t timestamp_ms, int64_t bound, int64_t *offset, int64_t *found_ms,
                            int32_t *leader_epoch) noexcept nogil
# The first record with the greatest timestamp (KIP-734); -1, -1, -1 in an empty log.
cdef int log_offset_of_max_timestamp(Log *log, int64_t *offset, int64_t *found_ms, int32_t *leader_epoch) noexcept nogil

# Largest timestamp in the segment and the last offset of the first batch that has it; -1 when it has none. 0 or -errno.
cdef int segment_max_timestamp(Log *log, Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil
