"""Implements local.pxd: the work of a fetcher on this broker's logs."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.error_codes cimport RECORD_LIST_TOO_LARGE
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.follow.followed cimport CUT_ALL, CUT_END
from kafkacore._fast.log.append cimport AppendInfo
from kafkacore._fast.log.commit cimport log_commit_soon
from kafkacore._fast.log.epochs cimport epochs_end, epochs_latest
from kafkacore._fast.log.log cimport LOG_CLOSED, LOG_FAILED, log_dir
from kafkacore._fast.log.partition cimport (
    WAIT_SYNCED, partition_append_as_follower, partition_follower_error, partition_unwait, partition_wait,
)
from kafkacore._fast.log.partition_role cimport (
    partition_delete_as_follower, partition_note_leader, partition_restart_as_follower, partition_truncate_as_follower,
)
from kafkacore._fast.record.record cimport BATCH_OK, BatchHeader, last_offset, parse_header
from kafkacore._fast.wait.park cimport WakeList, wake_all


cdef void local_position(Partition *p, Position *out) noexcept nogil:
    mutex_lock(&p.log.lock)
    out.end_offset = p.log.end_offset
    out.log_start_offset = p.log.log_start_offset
    out.last_epoch = epochs_latest(&p.log)
    mutex_unlock(&p.log.lock)


cdef bint local_has_failed(Partition *p) noexcept nogil:
    cdef bint failed
    mutex_lock(&p.log.lock)
    failed = p.log.state == LOG_FAILED or p.log.state == LOG_CLOSED
    mutex_unlock(&p.log.lock)
    return failed or load32(&log_dir(&p.log).offline) != 0


cdef bint local_awaits_sync(Partition *p, int64_t end_offset, Waiter *waiter) noexcept nogil:
    cdef bint is_due
    mutex_lock(&p.log.lock)
    is_due = end_offset - p.log.synced_offset >= p.log.config.flush_messages
    mutex_unlock(&p.log.lock)
    if not is_due:
        return False
    partition_unwait(p, waiter)
    waiter.kind = WAIT_SYNCED
    waiter.at = end_offset
    if not partition_wait(p, waiter):
        return False
    log_commit_soon(&p.log, end_offset)
    return True


cdef bint local_follows(Partition *p, int32_t leader_epoch) noexcept nogil:
    cdef bint follows
    mutex_lock(&p.log.lock)
    follows = partition_follower_error(p, leader_epoch) == 0
    mutex_unlock(&p.log.lock)
    return follows


cdef int local_append(Partition *p, const uint8_t *data, size_t size, int32_t leader_epoch, Waiter *blocked,
                      Appended *appended) noexcept nogil:
    cdef BatchHeader header
    cdef AppendInfo info
    cdef WakeList wakes
    cdef int error = partition_append_as_follower(p, data, size, leader_epoch, blocked, &info, &wakes)
    wake_all(&wakes)
    if error == RECORD_LIST_TOO_LARGE and parse_header(data, size, &header) == BATCH_OK:
        # The leader may have allowed larger segments than this log's configuration allows. In that case only the first
        # batch is appended, and the others are fetched again.
        size = <size_t> header.size_bytes
        error = partition_append_as_follower(p, data, size, leader_epoch, blocked, &info, &wakes)
        wake_all(&wakes)
    appended.first_offset = info.first_offset
    appended.last_offset = info.last_offset
    appended.bytes = size if error == 0 and info.last_offset >= 0 else 0
    return error


cdef bint local_begins_within(Partition *p, const uint8_t *data, size_t size, int64_t *base_offset) noexcept nogil:
    cdef BatchHeader header
    cdef Position at
    if parse_header(data, size, &header) != BATCH_OK:
        return False
    local_position(p, &at)
    base_offset[0] = header.base_offset
    return (at.end_offset == at.log_start_offset
            and header.base_offset < at.end_offset <= last_offset(&header))


cdef int local_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                           bint *start_is_behind) noexcept nogil:
    cdef WakeList wakes
    cdef int error = partition_note_leader(p, leader_epoch, high_watermark, log_start_offset, start_is_behind, &wakes)
    wake_all(&wakes)
    return error


cdef int64_t local_divergence(Partition *p, int32_t epoch, int64_t end_offset) noexcept nogil:
    cdef int64_t own_end, log_end
    cdef int32_t own_epoch
    mutex_lock(&p.log.lock)
    epochs_end(&p.log, epoch, &own_epoch, &own_end)
    log_end = p.log.end_offset
    mutex_unlock(&p.log.lock)
    if own_epoch == epoch:
        return min(own_end, end_offset, log_end)
    # This log lacks `epoch`, so it must end with its highest epoch below `epoch`. The next Fetch compares that lower
    # epoch with the leader's log. If there is no lower epoch, only the leader's end offset limits this log.
    return min(own_end if own_end >= 0 else end_offset, log_end)


cdef int local_cut(Partition *p, int what, int64_t offset, int32_t leader_epoch, Waiter *blocked) noexcept nogil:
    if what == CUT_END:
        return partition_truncate_as_follower(p, offset, leader_epoch, blocked)
    if what == CUT_ALL:
        return partition_restart_as_follower(p, offset, leader_epoch, blocked)
    return partition_delete_as_follower(p, offset, leader_epoch)
