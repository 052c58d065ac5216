"""Implements partition_role.pxd: the roles of partitions (Partition.makeLeader, makeFollower, prepareIsrExpand;
KIP-497, KIP-704)."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.commit cimport log_call_committer, log_want_synced
from kafkacore._fast.log.delete cimport log_drop_hidden, log_hide_below
from kafkacore._fast.log.epochs cimport epochs_assign
from kafkacore._fast.log.epochs_checkpoint cimport log_save_epochs
from kafkacore._fast.log.isr_edges cimport (
    IsrEdges, isr_edges_hold, isr_edges_link, isr_edges_report, isr_edges_unlink,
)
from kafkacore._fast.log.log cimport LOG_FAILED, Log, LogConfig, log_set_config
from kafkacore._fast.log.partition cimport (
    ROLE_FOLLOWER, ROLE_GONE, ROLE_LEADER, Follower, Partition, partition_advance, partition_follower_error,
    partition_monotonic_ms, partition_take_everybody, partition_wake_rest,
)
from kafkacore._fast.log.replicas cimport (
    replicas_check_lag, replicas_find, replicas_may_join, replicas_merge, replicas_some_must_leave,
)
from kafkacore._fast.log.truncate cimport Fence, log_truncate_fully, log_truncate_to
from kafkacore._fast.wait.park cimport WAKE_GONE, WAKE_READY, Waiter, WakeList, wake_all


cdef bint is_among(const int32_t *ids, int32_t count, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        if ids[i] == broker_id:
            return True
    return False


# --- roles ---

cdef bint is_older(const Partition *p, int32_t leader_epoch, int32_t partition_epoch) noexcept nogil:
    return p.role == ROLE_GONE or leader_epoch < p.leader_epoch or partition_epoch < p.partition_epoch


cdef int32_t make_followers(const LeaderRole *role, Follower *into) noexcept nogil:
    cdef int32_t count = 0
    cdef int32_t i
    for i in range(role.replica_count):
        if role.replicas[i] >= 0 and role.replicas[i] != role.leader_id:
            into[count].broker_id = role.replicas[i]
            into[count].in_sync = is_among(role.isr, role.isr_count, role.replicas[i])
            count += 1
    return count


cdef void keep_proposal(Partition *p, Follower *fresh, int32_t count) noexcept nogil:
    cdef const Follower *before
    cdef int32_t i
    for i in range(count):
        before = replicas_find(p, fresh[i].broker_id)
        fresh[i].is_joining = before != NULL and before.is_joining


cdef void take_role(Partition *p, int32_t role, int32_t leader_id, int32_t leader_epoch,
                    int32_t partition_epoch) noexcept nogil:
    if p.role == ROLE_LEADER and role != ROLE_LEADER:
        p.generation += 1
    p.role = role
    p.leader_id = leader_id
    p.leader_epoch = leader_epoch
    p.partition_epoch = partition_epoch


cdef void count_in_sync(Partition *p) noexcept nogil:
    """Counts the members of the ISR, and sets `role_changed`, so that all fetch sessions of the partition check it
    again. Every change of the role or the ISR ends with a call of this function."""
    cdef int32_t i
    p.role_changed = True
    p.in_sync_count = 1
    for i in range(p.follower_count):
        p.in_sync_count += p.followers[i].in_sync


cdef Follower *adopt_role(Partition *p, const LeaderRole *role, Follower *fresh, int32_t count) noexcept nogil:
    """Adopts the leader's role with the followers `fresh`. Call this with the lock held. Returns the former followers,
    which the caller frees."""
    cdef Follower *before = p.followers
    cdef bint is_new_epoch = p.role != ROLE_LEADER or role.leader_epoch != p.leader_epoch
    if is_new_epoch:
        epochs_assign(&p.log, role.leader_epoch, p.log.end_offset)
        log_save_epochs(&p.log)
        p.epoch_start_offset = p.log.end_offset
    replicas_merge(p, fresh, count, is_new_epoch, partition_monotonic_ms(p))
    if is_new_epoch or role.partition_epoch > p.partition_epoch:
        p.is_proposing = False
    if p.is_proposing:
        keep_proposal(p, fresh, count)
    take_role(p, ROLE_LEADER, role.leader_id, role.leader_epoch, role.partition_epoch)
    p.followers = fresh
    p.follower_count = count
    p.min_isr = role.min_isr
    p.is_recovering = role.is_recovering
    count_in_sync(p)
    return before


cdef void wake_after_change(Partition *p, bint everybody) noexcept nogil:
    """Wakes the waiters after a change of the role. Call this without the lock. A new role or leader epoch wakes all
    waiters, so that their requests check the partition again."""
    cdef WakeList wakes
    cdef bint more = True
    wakes.count = 0
    wakes.why = WAKE_GONE if everybody else WAKE_READY
    while more:
        mutex_lock(&p.log.lock)
        more = partition_advance(p, &wakes)
        if everybody and not more:
            more = partition_take_everybody(p, &wakes)
        mutex_unlock(&p.log.lock)
        wake_all(&wakes)


cdef void report_if_due(Partition *p) noexcept nogil:
    """Reports the partition to the queue if its ISR may have to change, or if this leader was elected uncleanly and has
    not reported its recovery. Does nothing while a proposal has no answer yet. Call this with the lock held."""
    cdef int32_t i
    if p.edges == NULL or p.role != ROLE_LEADER or p.is_proposing:
        return
    if p.is_recovering or replicas_some_must_leave(p, partition_monotonic_ms(p)):
        isr_edges_report(p.edges, &p.link)
        return
    for i in range(p.follower_count):
        if replicas_may_join(p, &p.followers[i]):
            isr_edges_report(p.edges, &p.link)
            return


cdef bint want_rest_synced(Partition *p) noexcept nogil:
    """If records raise the high watermark only once they are synced, requests a sync of all records, because there may
    be no append that requests it. Returns whether the caller must call the committer after it has released the lock."""
    if p.log.config.flush_messages > 1 or p.log.synced_offset >= p.log.end_offset:
        return False
    log_want_synced(&p.log, p.log.end_offset)
    return True


cdef void partition_set_config(Partition *p, LogConfig *config) noexcept nogil:
    cdef bint sync
    log_set_config(&p.log, config)
    mutex_lock(&p.log.lock)
    # With the former configuration, the last append may have requested no sync.
    sync = p.role == ROLE_LEADER and p.high_watermark < p.log.end_offset and want_rest_synced(p)
    mutex_unlock(&p.log.lock)
    if sync:
        log_call_committer(&p.log)


cdef bint partition_lead(Partition *p, const LeaderRole *role, int *error) noexcept nogil:
    cdef Follower *fresh = NULL
    cdef int32_t count = 0
    cdef bint is_new_epoch, sync
    error[0] = 0
    if role.replica_count > 0:
        fresh = <Follower *> calloc(role.replica_count, sizeof(Follower))
        if fresh == NULL:
            error[0] = -ENOMEM
            return False
        count = make_followers(role, fresh)
    mutex_lock(&p.log.lock)
    if is_older(p, role.leader_epoch, role.partition_epoch):
        mutex_unlock(&p.log.lock)
        free(fresh)
        return False
    is_new_epoch = p.role != ROLE_LEADER or role.leader_epoch != p.leader_epoch
    fresh = adopt_role(p, role, fresh, count)
    if p.edges != NULL:
        if count:
            isr_edges_link(p.edges, &p.link)
        else:
            isr_edges_unlink(p.edges, &p.link)
        report_if_due(p)
    # When the previous process ended, some records may have been only in the page cache.
    sync = want_rest_synced(p)
    mutex_unlock(&p.log.lock)
    wake_after_change(p, is_new_epoch)
    if sync:
        log_call_committer(&p.log)
    free(fresh)
    return True


cdef bint partition_follow(Partition *p, int32_t leader_id, int32_t leader_epoch,
                           int32_t partition_epoch) noexcept nogil:
    cdef Follower *before
    cdef bint changed
    mutex_lock(&p.log.lock)
    if is_older(p, leader_epoch, partition_epoch):
        mutex_unlock(&p.log.lock)
        return False
    changed = p.role != ROLE_FOLLOWER or leader_epoch != p.leader_epoch
    before = p.followers
    p.followers = NULL
    p.follower_count = 0
    p.is_proposing = p.is_recovering = False
    take_role(p, ROLE_FOLLOWER, leader_id, leader_epoch, partition_epoch)
    count_in_sync(p)
    mutex_unlock(&p.log.lock)
    if p.edges != NULL:
        isr_edges_unlink(p.edges, &p.link)
    wake_after_change(p, changed)
    free(before)
    return True


cdef void partition_report_to(Partition *p, IsrEdges *edges) noexcept nogil:
    mutex_lock(&p.log.lock)
    if p.edges == NULL:
        isr_edges_hold(edges)
        p.edges = edges
    mutex_unlock(&p.log.lock)


# --- the ISR ---

cdef bint partition_propose_isr(Partition *p, const int32_t *isr, int32_t count,
                                int32_t partition_epoch) noexcept nogil:
    cdef Follower *follower
    cdef bint proposes
    cdef int32_t i
    mutex_lock(&p.log.lock)
    proposes = p.role == ROLE_LEADER and partition_epoch == p.partition_epoch and not p.is_proposing
    if proposes:
        p.is_proposing = True
        for i in range(p.follower_count):
            follower = &p.followers[i]
            follower.is_joining = not follower.in_sync and is_among(isr, count, follower.broker_id)
    mutex_unlock(&p.log.lock)
    return proposes


cdef void forget_proposal(Partition *p) noexcept nogil:
    cdef int32_t i
    p.is_proposing = False
    for i in range(p.follower_count):
        p.followers[i].is_joining = False


cdef void partition_withdraw_isr(Partition *p) noexcept nogil:
    mutex_lock(&p.log.lock)
    forget_proposal(p)
    mutex_unlock(&p.log.lock)
    wake_after_change(p, False)


cdef bint partition_commit_isr(Partition *p, const int32_t *isr, int32_t count, int32_t leader_epoch,
                               int32_t partition_epoch, bint is_recovering) noexcept nogil:
    cdef Follower *follower
    cdef bint commits, in_sync
    cdef int32_t i
    mutex_lock(&p.log.lock)
    commits = p.role == ROLE_LEADER and leader_epoch == p.leader_epoch and partition_epoch >= p.partition_epoch
    if commits:
        forget_proposal(p)
        p.partition_epoch = partition_epoch
        p.is_recovering = is_recovering
        for i in range(p.follower_count):
            follower = &p.followers[i]
            in_sync = is_among(isr, count, follower.broker_id)
            follower.must_fetch |= follower.in_sync and not in_sync
            follower.must_leave &= in_sync
            follower.in_sync = in_sync
        count_in_sync(p)
        report_if_due(p)
    mutex_unlock(&p.log.lock)
    if commits:
        wake_after_change(p, False)
    return commits


cdef void partition_check_lag(Partition *p) noexcept nogil:
    cdef WakeList wakes
    cdef bint more = False
    wakes.count = 0
    wakes.why = WAKE_READY
    mutex_lock(&p.log.lock)
    if p.role == ROLE_LEADER:
        replicas_check_lag(p, partition_monotonic_ms(p))
        report_if_due(p)
    # A follower outside the ISR may now lag, or its broker may be fenced. Such a follower no longer holds back the high
    # watermark.
    if p.role == ROLE_LEADER:
        more = partition_advance(p, &wakes)
    mutex_unlock(&p.log.lock)
    if more:
        partition_wake_rest(p, &wakes)
    wake_all(&wakes)


# --- a follower's log ---

cdef int may_change(Log *log, int32_t leader_epoch) noexcept nogil:
    return partition_follower_error(<Partition *> log, leader_epoch)


cdef int partition_truncate_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                        Waiter *blocked) noexcept nogil:
    cdef Fence fence
    fence.may = may_change
    fence.epoch = leader_epoch
    return log_truncate_to(&p.log, offset, &fence, blocked)


cdef int partition_restart_as_follower(Partition *p, int64_t offset, int32_t leader_epoch,
                                       Waiter *blocked) noexcept nogil:
    cdef Fence fence
    fence.may = may_change
    fence.epoch = leader_epoch
    return log_truncate_fully(&p.log, offset, &fence, blocked)


cdef int partition_note_leader(Partition *p, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset,
                               bint *start_is_behind, WakeList *wakes) noexcept nogil:
    cdef bint more = False
    cdef int error
    wakes.count = 0
    wakes.why = WAKE_READY
    start_is_behind[0] = False
    mutex_lock(&p.log.lock)
    error = partition_follower_error(p, leader_epoch)
    if error == 0 and (p.log.state == LOG_FAILED or load32(&p.log.dir.offline)):
        error = KAFKA_STORAGE_ERROR
    if error == 0:
        if p.log.log_start_offset < log_start_offset <= p.log.end_offset:
            # This log's records below the leader's log start offset may differ from those that the leader has deleted.
            # Readers must not see such records, so the log start offset moves together with the high watermark.
            start_is_behind[0] = True
            log_hide_below(&p.log, log_start_offset)  # `partition_delete_as_follower` reports an error of the log
        # The high watermark can also become lower, because the previous leader may have reported a higher one than the
        # new leader.
        p.high_watermark = max(min(high_watermark, p.log.end_offset), p.log.log_start_offset)
        more = partition_advance(p, wakes)
    mutex_unlock(&p.log.lock)
    if more:
        partition_wake_rest(p, wakes)
    return error


cdef int partition_delete_as_follower(Partition *p, int64_t log_start_offset, int32_t leader_epoch) noexcept nogil:
    cdef int error
    mutex_lock(&p.log.lock)
    error = partition_follower_error(p, leader_epoch)
    if error == 0:
        error = log_hide_below(&p.log, log_start_offset)
    mutex_unlock(&p.log.lock)
    return error if error != 0 else log_drop_hidden(&p.log)
