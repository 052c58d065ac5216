"""Implements take.pxd: appends a leader's records (ReplicaFetcherThread.processPartitionData)."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport add64, load32
from kafkacore._fast.base.error_codes cimport OFFSET_OUT_OF_RANGE
from kafkacore._fast.follow.cut cimport cut_begin, cut_or_go_on
from kafkacore._fast.follow.followed cimport (
    BEFELL_CORRUPT, BEFELL_FAILED, BEFELL_NEWER_EPOCH, CUT_ALL, CUT_START, FOLLOW_BLOCKED, FOLLOW_FAILED,
    Fetcher, Position, befell, followed_delay, followed_drop_kept, followed_fail, followed_go_on, followed_lags,
    followed_set,
)
from kafkacore._fast.follow.local cimport (
    Appended, local_append, local_begins_within, local_follows, local_has_failed, local_note_leader, local_position,
)
from kafkacore._fast.log.log cimport LOG_BLOCKED
from kafkacore._fast.log.partition cimport partition_monotonic_ms
from kafkacore._fast.log.replication_quota cimport THROTTLED_FOLLOWER, Quota, quota_record
from kafkacore._fast.record.record cimport BATCH_OK, BatchHeader, parse_header


cdef void take_error(Followed *each, int error) noexcept nogil:
    if not local_follows(each.partition, each.at.leader_epoch):
        # With its next role, this broker follows the partition again or stops following it.
        followed_set(each, FOLLOW_FAILED)
    elif local_has_failed(each.partition):
        followed_fail(each, BEFELL_FAILED, error)
    else:
        befell(each, BEFELL_CORRUPT, each.at.end_offset, error)
        followed_delay(each)


cdef void keep(Followed *each, const uint8_t *data, size_t size, int64_t high_watermark,
               int64_t log_start_offset) noexcept nogil:
    """Keeps a copy of the records. If memory runs out, drops the records, which are then fetched again."""
    cdef Fetcher *f = each.fetcher
    each.kept_high_watermark = high_watermark
    each.kept_log_start = log_start_offset
    if data == each.kept or f.kept_bytes + <int64_t> size > <int64_t> f.limits.response_max_bytes:
        return
    each.kept = <uint8_t *> malloc(size)
    if each.kept != NULL:
        memcpy(each.kept, data, size)
        each.kept_size = size
        f.kept_bytes += <int64_t> size


cdef void note_leader(Followed *each, int64_t high_watermark, int64_t log_start_offset) noexcept nogil:
    cdef bint start_is_behind = False
    cdef int error = local_note_leader(each.partition, each.at.leader_epoch, high_watermark, log_start_offset,
                                       &start_is_behind)
    if error != 0:
        take_error(each, error)
        return
    local_position(each.partition, &each.at)
    followed_lags(each, max(high_watermark - each.at.end_offset, 0))
    if start_is_behind:
        cut_begin(each, CUT_START, log_start_offset)
    else:
        followed_go_on(each)


cdef bint is_of_newer_epoch(const Followed *each, const uint8_t *data, size_t size) noexcept nogil:
    """Returns True if nothing was appended because the first batch has a newer epoch. Returns False if the leader sent
    no whole batch."""
    cdef BatchHeader header
    return (parse_header(data, size, &header) == BATCH_OK
            and header.partition_leader_epoch > each.at.leader_epoch)


cdef void count_throttled(Followed *each, int64_t size_bytes) noexcept nogil:
    """Counts all records that throttled partitions fetch. Partitions in the ISR count too, although no quota delays
    them."""
    cdef Quota *quota = each.fetcher.limits.quota
    if quota != NULL and load32(&each.partition.throttled) & THROTTLED_FOLLOWER:
        quota_record(quota, size_bytes, partition_monotonic_ms(each.partition))


cdef bint append(Followed *each, const uint8_t *data, size_t size, int64_t high_watermark,
                 int64_t log_start_offset) noexcept nogil:
    """Appends the records. Returns whether they are in the log."""
    cdef Appended appended
    cdef int64_t base_offset
    cdef int error = local_append(each.partition, data, size, each.at.leader_epoch, &each.waiter, &appended)
    if error == LOG_BLOCKED:
        keep(each, data, size, high_watermark, log_start_offset)
        followed_set(each, FOLLOW_BLOCKED)
    elif error == OFFSET_OUT_OF_RANGE and local_begins_within(each.partition, data, size, &base_offset):
        # The leader has deleted the beginning of this batch, but this log must begin at the base offset of the batch.
        keep(each, data, size, high_watermark, log_start_offset)
        cut_begin(each, CUT_ALL, base_offset)
    elif error != 0:
        take_error(each, error)
    elif appended.bytes == 0 and is_of_newer_epoch(each, data, size):
        befell(each, BEFELL_NEWER_EPOCH, each.at.end_offset, each.at.leader_epoch)
        followed_delay(each)
    else:
        add64(&each.fetcher.counts.bytes, <int64_t> appended.bytes)
        count_throttled(each, <int64_t> appended.bytes)
        return True
    return False


cdef void take_records(Followed *each, const uint8_t *data, size_t size, int64_t high_watermark,
                       int64_t log_start_offset) noexcept nogil:
    cdef Position now
    local_position(each.partition, &now)
    if now.end_offset != each.at.end_offset or now.last_epoch != each.at.last_epoch:
        # Other code has changed the log since the request was made.
        cut_or_go_on(each)
    elif size == 0 or append(each, data, size, high_watermark, log_start_offset):
        note_leader(each, high_watermark, log_start_offset)


cdef void take_kept(Followed *each) noexcept nogil:
    if each.kept == NULL:
        followed_go_on(each)
        return
    if each.state != FOLLOW_BLOCKED:
        local_position(each.partition, &each.at)  # the log was emptied, and begins at these records
    take_records(each, each.kept, each.kept_size, each.kept_high_watermark, each.kept_log_start)
    if each.state != FOLLOW_BLOCKED:
        followed_drop_kept(each)
