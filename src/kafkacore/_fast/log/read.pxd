"""Finds the range of bytes of a log that answers a fetch, and finds offsets by time."""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.segment cimport Segment

ctypedef struct ReadResult:
    Segment *segment      # with a reference; NULL if there is nothing to read
    int64_t position
    int64_t size          # 0 if `offset` is at `bound`, or if the first batch is larger than `max_bytes`
    int64_t first_offset  # the base offset of the first batch
    int failure           # the reason for KAFKA_STORAGE_ERROR: a negative errno, or 0 if the log has failed earlier
    int32_t cuts          # `segment.cuts` when the range was found; if it changes, the bytes may have changed
    bint cached           # the range was appended recently, so it is in the page cache

# Finds the batches from the one that contains `offset` up to `bound` (exclusive), about `max_bytes` in total. With
# `min_one`, finds at least one whole batch. Returns 0, OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR. Never blocks. If it
# would have to wait for the disk, returns LOG_BLOCKED. Then the caller submits a job to the I/O pool (io.pxd) that
# calls `log_read_slowly`.
cdef int log_read(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                  ReadResult *out) noexcept nogil
cdef int log_read_slowly(Log *log, int64_t offset, int64_t bound, int64_t max_bytes, bint min_one,
                         ReadResult *out) noexcept nogil

# Call the next two functions only on threads of the I/O pool. Both return 0 or a Kafka error code. The first function
# finds the first record at or after `timestamp_ms` and below `bound` (ListOffsets by time). The results are -1, -1, -1
# if no such record exists.
cdef int log_offset_by_time(Log *log, int64_t timestamp_ms, int64_t bound, int64_t *offset, int64_t *found_ms,
                            int32_t *leader_epoch) noexcept nogil
# Finds the first record with the greatest timestamp (KIP-734). The results are -1, -1, -1 for an empty log.
cdef int log_offset_of_max_timestamp(Log *log, int64_t *offset, int64_t *found_ms, int32_t *leader_epoch) noexcept nogil

# Finds the largest timestamp in the segment, and the last offset of the first batch that has it. Both are -1 if the
# segment has no timestamp. Returns 0 or -errno.
cdef int segment_max_timestamp(Log *log, Segment *segment, int64_t *timestamp_ms, int64_t *offset) noexcept nogil
