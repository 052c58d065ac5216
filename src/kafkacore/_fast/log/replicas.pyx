"""Implements replicas.pxd: the followers of a partition (kafka.cluster.Replica; Partition.maybeIncrementLeaderHW)."""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.atomics cimport load64
from kafkacore._fast.base.error_codes cimport NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.log.isr_edges cimport (
    BROKER_ACTIVE, BROKER_FENCED, BrokerState, isr_edges_broker, isr_edges_report,
)
from kafkacore._fast.log.partition cimport NEVER_MS, NO_EPOCH, Follower, FollowerFetch, Partition


cdef Follower *replicas_find(const Partition *p, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    for i in range(p.follower_count):
        if p.followers[i].broker_id == broker_id:
            return &p.followers[i]
    return NULL


# --- high watermark ---

cdef int32_t replicas_least_isr(const Partition *p) noexcept nogil:
    return min(p.min_isr, p.follower_count + 1)


cdef int32_t replicas_maximal_isr(const Partition *p) noexcept nogil:
    cdef int32_t size = p.in_sync_count
    cdef int32_t i
    for i in range(p.follower_count):
        size += p.followers[i].is_joining
    return size


cdef bint is_waited_for(const Partition *p, const Follower *follower, int64_t now_ms) noexcept nogil:
    """Returns whether the high watermark waits for this follower, which is outside the ISR. The high watermark waits if
    the follower has caught up and is eligible. Otherwise the high watermark could always stay above the end of that
    follower's log, and the follower could never join the ISR."""
    if is_planted(b"joining-replica-not-awaited"):
        return False
    return not replicas_lags(p, follower, now_ms) and is_eligible(p, follower)


cdef int64_t replicas_reached(const Partition *p, int64_t own) noexcept nogil:
    cdef const Follower *follower
    cdef int64_t reached = own
    cdef int64_t now_ms = -1
    cdef int32_t i
    if p.follower_count == 0:
        return own
    if p.in_sync_count < replicas_least_isr(p) and not is_planted(b"high-watermark-below-min-isr"):
        return -1
    for i in range(p.follower_count):
        follower = &p.followers[i]
        if follower.end_offset >= reached:
            continue
        if not follower.in_sync and not follower.is_joining:
            if now_ms < 0:
                now_ms = p.log.clock.monotonic_ns(p.log.clock.self) // 1000000
            if not is_waited_for(p, follower, now_ms):
                continue
        reached = follower.end_offset
    return reached


# --- fetches ---

cdef int replicas_check(const Partition *p, int32_t broker_id, int32_t current_epoch) noexcept nogil:
    if replicas_find(p, broker_id) != NULL:
        return 0
    # A new replica may learn its assignment before this node does. In that case the replica tries again.
    return UNKNOWN_LEADER_EPOCH if current_epoch != NO_EPOCH else NOT_LEADER_OR_FOLLOWER


cdef int replicas_note(Partition *p, const FollowerFetch *fetch, int32_t current_epoch) noexcept nogil:
    cdef Follower *follower = replicas_find(p, fetch.broker_id)
    cdef int64_t end_offset = p.log.end_offset
    cdef BrokerState broker
    if follower == NULL:
        return replicas_check(p, fetch.broker_id, current_epoch)
    if fetch.broker_epoch >= 0 and p.edges != NULL:
        broker = isr_edges_broker(p.edges, fetch.broker_id)
        if broker.state > BROKER_FENCED and broker.epoch > fetch.broker_epoch:
            return NOT_LEADER_OR_FOLLOWER
    if fetch.offset >= end_offset:
        follower.caught_up_ms = max(follower.caught_up_ms, fetch.now_ms)
    elif follower.end_offset >= 0 and fetch.offset >= follower.leader_end_offset:
        # The follower has all records that this log had at the follower's last fetch.
        follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
    follower.must_fetch = False
    follower.end_offset = fetch.offset
    follower.log_start_offset = fetch.log_start_offset
    follower.leader_end_offset = max(end_offset, follower.leader_end_offset)
    follower.fetched_ms = fetch.now_ms
    follower.broker_epoch = fetch.broker_epoch
    if p.edges != NULL and not p.is_proposing and replicas_may_join(p, follower):
        isr_edges_report(p.edges, &p.link)
    return 0


cdef int64_t replicas_low_watermark(const Partition *p) noexcept nogil:
    cdef int64_t low = p.log.log_start_offset
    cdef int32_t i
    for i in range(p.follower_count):
        if p.followers[i].log_start_offset < low and is_alive(p, &p.followers[i]):
            low = p.followers[i].log_start_offset
    return low


# --- membership ---

cdef bint is_alive(const Partition *p, const Follower *follower) noexcept nogil:
    return p.edges == NULL or isr_edges_broker(p.edges, follower.broker_id).state > BROKER_FENCED


cdef bint is_eligible(const Partition *p, const Follower *follower) noexcept nogil:
    """Returns whether the follower's broker can join an ISR. The broker must be neither fenced nor shutting down, and
    the follower's last fetch must come from the broker's current incarnation."""
    cdef BrokerState broker
    if follower.end_offset < 0:
        return False
    if p.edges == NULL:
        return True
    broker = isr_edges_broker(p.edges, follower.broker_id)
    # A broker in ZooKeeper mode does not know the broker epochs of the other brokers, so these epochs are -1.
    return broker.state == BROKER_ACTIVE and (follower.broker_epoch < 0 or broker.epoch < 0
                                              or follower.broker_epoch == broker.epoch)


cdef bint replicas_may_join(const Partition *p, const Follower *follower) noexcept nogil:
    """Returns whether the follower may join the ISR. A follower that has not reached the start of the leader epoch
    might lack records that an earlier leader committed. A follower that has left the ISR must fetch before it joins
    again. While no record comes, or while the ISR is smaller than min.insync.replicas, the high watermark does not
    move. So even a follower that no longer fetches, such as one whose disk has failed, seems to have caught up."""
    return (not follower.in_sync and not follower.must_fetch and follower.end_offset >= p.high_watermark
            and follower.end_offset >= p.epoch_start_offset and is_eligible(p, follower))


cdef bint replicas_lags(const Partition *p, const Follower *follower, int64_t now_ms) noexcept nogil:
    cdef int64_t max_lag_ms = load64(&p.edges.max_lag_ms) if p.edges != NULL else 30000
    return follower.end_offset != p.log.end_offset and now_ms - follower.caught_up_ms > max_lag_ms


cdef void replicas_check_lag(Partition *p, int64_t now_ms) noexcept nogil:
    cdef int32_t i
    for i in range(p.follower_count):
        p.followers[i].must_leave = p.followers[i].in_sync and replicas_lags(p, &p.followers[i], now_ms)


cdef bint replicas_must_leave(const Partition *p, const Follower *follower, int64_t now_ms) noexcept nogil:
    """While the ISR is smaller than min.insync.replicas, the high watermark does not move. So a follower far behind the
    end of the log may join the ISR. This follower stays a member until the next periodic check. Otherwise it would join
    and leave with each fetch."""
    return follower.must_leave and replicas_lags(p, follower, now_ms)


cdef bint replicas_some_must_leave(const Partition *p, int64_t now_ms) noexcept nogil:
    cdef int32_t i
    for i in range(p.follower_count):
        if replicas_must_leave(p, &p.followers[i], now_ms):
            return True
    return False


cdef void replicas_merge(const Partition *p, Follower *fresh, int32_t count, bint is_new_epoch,
                         int64_t now_ms) noexcept nogil:
    cdef const Follower *before
    cdef Follower *follower
    cdef int32_t i
    for i in range(count):
        follower = &fresh[i]
        before = NULL if is_new_epoch or is_planted(b"followers-forgotten") else replicas_find(p, follower.broker_id)
        if before != NULL:
            follower.end_offset = before.end_offset
            follower.log_start_offset = before.log_start_offset
            follower.caught_up_ms = before.caught_up_ms
            follower.fetched_ms = before.fetched_ms
            follower.leader_end_offset = before.leader_end_offset
            follower.broker_epoch = before.broker_epoch
            follower.must_leave = before.must_leave and follower.in_sync
            follower.must_fetch = before.must_fetch or (before.in_sync and not follower.in_sync)
        else:
            follower.end_offset = follower.log_start_offset = follower.leader_end_offset = -1
            follower.broker_epoch = -1
            # A member of the ISR must send its first fetch within replica.lag.time.max.ms. The high watermark waits for
            # any other replica only once that replica has fetched.
            follower.caught_up_ms = now_ms if follower.in_sync else NEVER_MS
            follower.fetched_ms = NEVER_MS


# --- clients that read from followers ---

cdef bint is_better(const Follower *one, const Follower *other) noexcept nogil:
    if one.end_offset != other.end_offset:
        return one.end_offset > other.end_offset
    if one.caught_up_ms != other.caught_up_ms:
        return one.caught_up_ms > other.caught_up_ms
    return one.broker_id > other.broker_id


cdef int32_t replicas_readable(const Partition *p, int64_t offset, int32_t *broker_ids, int32_t most) noexcept nogil:
    cdef const Follower *follower
    cdef int32_t count = 0
    cdef int32_t i, at
    for i in range(p.follower_count):
        follower = &p.followers[i]
        if not follower.in_sync or not follower.log_start_offset <= offset <= follower.end_offset:
            continue
        at = count
        while at > 0 and is_better(follower, replicas_find(p, broker_ids[at - 1])):
            if at < most:
                broker_ids[at] = broker_ids[at - 1]
            at -= 1
        if at < most:
            broker_ids[at] = follower.broker_id
            count = min(count + 1, most)
    return count
