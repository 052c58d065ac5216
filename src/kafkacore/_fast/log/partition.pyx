"""Implements partition.pxd: partitions in the data plane (kafka.cluster.Partition)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kafkacore._fast.base.error_codes cimport (
    FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkacore._fast.base.atomics cimport add32, load32
from kafkacore._fast.base.made_ids cimport is_made_id
from kafkacore._fast.log.epochs cimport epochs_end
from kafkacore._fast.wait.io cimport io_hold, io_release
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, config_release, log_destroy, log_fail, log_hold_config, log_init,
    log_now_ms, log_wake_blocked,
)
from kafkacore._fast.log.append cimport (
    Prepared, append_info_init, log_append_checked, log_append_prepared, log_prepare, prepared_free
)
from kafkacore._fast.log.files cimport write_partition_metadata
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.log.commit cimport log_call_committer, log_commit_init, log_want_synced
from kafkacore._fast.log.isr_edges cimport IsrLink, isr_edges_release, isr_edges_unlink
from kafkacore._fast.log.jobs cimport is_short_of_files
from kafkacore._fast.log.open cimport log_open_ahead
from kafkacore._fast.log.read cimport log_read, log_read_slowly
from kafkacore._fast.log.readers cimport readers_dismiss, readers_join, readers_tell
from kafkacore._fast.log.delete cimport log_drop_hidden, log_hide_below
from kafkacore._fast.log.replicas cimport (
    replicas_check, replicas_find, replicas_least_isr, replicas_low_watermark, replicas_maximal_isr, replicas_note,
    replicas_reached,
)
from kafkacore._fast.log.replication_quota cimport THROTTLED_LEADER
from kafkacore._fast.log.shut cimport log_go_on, log_hold_still
from kafkacore._fast.log.traffic cimport traffic_produced
from kafkacore._fast.wait.park cimport WAKE_GONE, WAKE_READY, park_release, wake_all
from kafkacore._fast.log.producers cimport producers_expire, producers_first_unstable, producers_replicated
from kafkacore._fast.log.invariants cimport check_partition
from kafkacore._fast.base.sync cimport mutex_guards, mutex_lock, mutex_unlock
from kafkacore._fast.record.record cimport HEADER_BYTES
from kafkacore._fast.record.validate cimport BatchesResult, check_batches
from kafkacore._fast.wait.waiters cimport waiter_push, waiter_unlink, waiters_take, waiters_take_all

cdef int64_t FOREVER = 0x7FFFFFFFFFFFFFFF
cdef int32_t LAST_EPOCH = 0x7FFFFFFF

cdef int32_t live_partitions = 0  # atomic; tests check that it returns to zero


# --- life ---

cdef void hold_log(Log *log) noexcept nogil:
    partition_hold(<Partition *> log)


cdef void release_log(Log *log) noexcept nogil:
    partition_release(<Partition *> log)


cdef bint log_changed(Log *log, WakeList *wakes) noexcept nogil:
    cdef Partition *p = <Partition *> log
    if p.rewinds != log.rewinds and not is_planted(b"acknowledged-across-truncation"):
        # The offsets that waiters await can now get other records.
        p.rewinds = log.rewinds
        p.generation += 1
        p.wakes_everybody = True
    if p.wakes_everybody or log.state == LOG_FAILED:
        if log.state != LOG_FAILED:
            advance_high_watermark(p)
        p.wakes_everybody = partition_take_everybody(p, wakes)
        return p.wakes_everybody
    return partition_advance(p, wakes)


cdef Partition *partition_new(LogDir *dir, const Clock *clock, LogConfig *config, const char *topic, int32_t topic_size,
                              const uint8_t *topic_id, int32_t index, bint named) noexcept nogil:
    cdef Partition *p = <Partition *> calloc(1, sizeof(Partition))
    cdef char *name = <char *> malloc(topic_size if topic_size > 0 else 1)
    if p == NULL or name == NULL or log_init(&p.log, dir, clock, config, 0) != 0:
        free(name)
        free(p)
        return NULL
    mutex_guards(&p.log.lock, check_partition, p)
    memcpy(name, topic, topic_size)
    memcpy(p.topic_id, topic_id, 16)
    p.topic = name
    p.topic_size = topic_size
    p.index = index
    p.refs = 1
    p.leader_id = p.leader_epoch = p.partition_epoch = -1
    p.min_isr = 1
    p.in_sync_count = 1
    p.link.refs = &p.refs
    p.log.topic = name
    p.log.topic_size = topic_size
    p.log.index = index
    p.log.topic_id = p.topic_id if named and not is_made_id(topic_id) else NULL
    p.log.hold = hold_log
    p.log.release = release_log
    p.log.on_change = log_changed
    log_commit_init(&p.log)
    io_hold(dir)
    add32(&live_partitions, 1)
    return p


cdef void partition_hold(Partition *p) noexcept nogil:
    add32(&p.refs, 1)


cdef void partition_release(Partition *p) noexcept nogil:
    cdef LogDir *dir
    if p == NULL or add32(&p.refs, -1) != 0:
        return
    if p.edges != NULL:
        isr_edges_unlink(p.edges, &p.link)
        isr_edges_release(p.edges)
    dir = p.log.dir
    log_destroy(&p.log)
    free(p.followers)
    free(p.adding)
    free(p.topic)
    free(p)
    io_release(dir)
    add32(&live_partitions, -1)


# --- high watermark and waiters ---

cdef bint partition_take_everybody(Partition *p, WakeList *wakes) noexcept nogil:
    cdef int kind
    cdef bint more = False
    for kind in range(WAIT_KINDS):
        more = waiters_take_all(&p.waiting[kind], wakes) or more
    return tell_readers(p, True, wakes) or more


cdef bint synced_first(const Partition *p) noexcept nogil:
    """Returns whether each acknowledgement waits for a flush. If so, the leader advances the high watermark only over
    records that it has synced."""
    return p.log.config.flush_messages <= 1


cdef int64_t satisfied_by(const Partition *p, int kind) noexcept nogil:
    """Returns an offset. Waiters of this kind are satisfied if their `at` is at most this offset."""
    if kind == WAIT_FETCH:
        return p.high_watermark - 1
    if kind == WAIT_FOLLOWER:
        return p.log.end_offset - 1
    if kind == WAIT_ACKS:
        return p.high_watermark
    if kind == WAIT_DELETED:
        return replicas_low_watermark(p)
    if kind == WAIT_COMMITTED:
        return p.last_stable_offset - 1
    if kind == WAIT_ACKS_SYNCED and p.high_watermark < p.log.synced_offset:
        return p.high_watermark
    return p.log.synced_offset


cdef void advance_high_watermark(Partition *p) noexcept nogil:
    cdef int64_t reached = p.log.end_offset
    if synced_first(p) and not is_planted(b"unsynced-high-watermark"):
        reached = p.log.synced_offset
    if p.role == ROLE_LEADER:
        p.high_watermark = max(p.high_watermark, replicas_reached(p, reached))
    # A truncation lowers the high watermark, and a new log start offset can raise it.
    if p.high_watermark > p.log.end_offset:
        p.high_watermark = p.log.end_offset
    if p.high_watermark < p.log.log_start_offset:
        p.high_watermark = p.log.log_start_offset
    if p.log.producers != NULL and p.log.first_unstable_offset >= 0:
        # Ended transactions are removed even if the high watermark has not changed, because a load replays transactions
        # that ended long ago.
        producers_replicated(p.log.producers, p.high_watermark)
        p.log.first_unstable_offset = producers_first_unstable(p.log.producers)
    p.last_stable_offset = p.high_watermark
    if 0 <= p.log.first_unstable_offset < p.high_watermark:
        # The records at the start of the oldest open transaction may have been deleted.
        p.last_stable_offset = max(p.log.first_unstable_offset, p.log.log_start_offset)


cdef bint partition_advance(Partition *p, WakeList *wakes) noexcept nogil:
    cdef int kind
    cdef bint more = False
    advance_high_watermark(p)
    for kind in range(WAIT_KINDS):
        if p.waiting[kind] != NULL:
            more = waiters_take(&p.waiting[kind], satisfied_by(p, kind), wakes) or more
    return tell_readers(p, False, wakes) or more


cdef bint tell_readers(Partition *p, bint everybody, WakeList *wakes) noexcept nogil:
    cdef int64_t reached[WAIT_KINDS]
    if p.readers.first == NULL:
        return False
    reached[WAIT_FETCH] = satisfied_by(p, WAIT_FETCH)
    reached[WAIT_FOLLOWER] = satisfied_by(p, WAIT_FOLLOWER)
    reached[WAIT_COMMITTED] = satisfied_by(p, WAIT_COMMITTED)
    return readers_tell(p, reached, everybody, wakes)


cdef bint partition_wait(Partition *p, Waiter *waiter) noexcept nogil:
    cdef bint queued = False
    mutex_lock(&p.log.lock)
    # When a replica loses the leadership, it wakes its waiters. A waiter that is queued after that would never be
    # woken.
    queued = waiter.at > satisfied_by(p, waiter.kind) and may_wait(p, waiter.kind) and push_waiter(p, waiter)
    mutex_unlock(&p.log.lock)
    return queued


cdef bint may_wait(const Partition *p, int kind) noexcept nogil:
    if p.role == ROLE_LEADER or kind == WAIT_SYNCED:
        return p.role != ROLE_GONE
    return p.role == ROLE_FOLLOWER and (kind == WAIT_FETCH or kind == WAIT_COMMITTED)


cdef bint push_waiter(Partition *p, Waiter *waiter) noexcept nogil:
    if waiter.back != NULL or p.log.state == LOG_FAILED or p.log.state == LOG_CLOSED:
        return False
    waiter_push(&p.waiting[waiter.kind], waiter)
    return True


cdef int ack_error(const Partition *p, const Acknowledgement *ack) noexcept nogil:
    if p.generation != ack.generation and not is_planted(b"acknowledgement-outlives-leadership"):
        return KAFKA_STORAGE_ERROR if p.log.state == LOG_FAILED else NOT_LEADER_OR_FOLLOWER
    if ack.at > satisfied_by(p, ack.kind):
        if p.log.state == LOG_FAILED or load32(&p.log.dir.offline):
            return KAFKA_STORAGE_ERROR
        return NOT_LEADER_OR_FOLLOWER if p.log.state == LOG_CLOSED else LOG_BLOCKED
    if ack.kind != WAIT_SYNCED and replicas_maximal_isr(p) < replicas_least_isr(p):
        return NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return 0


cdef int partition_acknowledged(Partition *p, const Acknowledgement *ack) noexcept nogil:
    cdef int error
    mutex_lock(&p.log.lock)
    error = ack_error(p, ack)
    mutex_unlock(&p.log.lock)
    return error


cdef bint partition_wait_for_ack(Partition *p, const Acknowledgement *ack, Waiter *waiter) noexcept nogil:
    cdef bint queued
    waiter.kind = ack.kind
    waiter.at = ack.at
    mutex_lock(&p.log.lock)
    queued = ack_error(p, ack) == LOG_BLOCKED and push_waiter(p, waiter)
    mutex_unlock(&p.log.lock)
    return queued


cdef void partition_unwait(Partition *p, Waiter *waiter) noexcept nogil:
    cdef bint queued
    mutex_lock(&p.log.lock)
    queued = waiter.back != NULL
    if queued:
        waiter_unlink(waiter)
    mutex_unlock(&p.log.lock)
    if queued:
        park_release(waiter.parked)


cdef void partition_wake_rest(Partition *p, WakeList *wakes) noexcept nogil:
    """Wakes full lists of satisfied waiters until the rest fits into one list, which the caller wakes."""
    cdef bint more = True
    while more:
        wake_all(wakes)
        mutex_lock(&p.log.lock)
        more = partition_advance(p, wakes)
        mutex_unlock(&p.log.lock)


# --- roles ---

cdef void partition_close(Partition *p, int role) noexcept nogil:
    cdef WakeList wakes
    cdef bint more = True
    wakes.count = 0
    wakes.why = WAKE_GONE
    while more:
        mutex_lock(&p.log.lock)
        if p.role != role:
            p.role = role
            p.generation += 1
        more = partition_take_everybody(p, &wakes)
        mutex_unlock(&p.log.lock)
        wake_all(&wakes)
    partition_dismiss_readers(p)
    if p.edges != NULL:
        isr_edges_unlink(p.edges, &p.link)
    log_wake_blocked(&p.log, WAKE_GONE)


cdef void partition_dismiss_readers(Partition *p) noexcept nogil:
    cdef int32_t counts
    mutex_lock(&p.log.lock)
    counts = readers_dismiss(p)
    mutex_unlock(&p.log.lock)
    add32(&p.refs, -counts)  # the count cannot become 0, because the caller holds a reference


cdef void partition_fail(Partition *p, int error) noexcept nogil:
    log_fail(&p.log, error)


cdef int partition_role_error(const Partition *p, int32_t current_epoch, bint any_replica) noexcept nogil:
    if p.role == ROLE_GONE:
        return UNKNOWN_TOPIC_OR_PARTITION
    if p.log.state == LOG_FAILED:
        # Because of this failure, the broker will soon lose the leadership. This check comes before the check of the
        # epoch, so that the client learns the true reason. (In Kafka, the partition is offline.)
        return KAFKA_STORAGE_ERROR
    if current_epoch >= 0 and current_epoch < p.leader_epoch:
        return FENCED_LEADER_EPOCH
    if current_epoch > p.leader_epoch:
        return UNKNOWN_LEADER_EPOCH
    if p.role == ROLE_LEADER or (any_replica and p.role == ROLE_FOLLOWER):
        return 0
    return NOT_LEADER_OR_FOLLOWER


cdef int partition_follower_error(const Partition *p, int32_t leader_epoch) noexcept nogil:
    if p.role == ROLE_GONE:
        return UNKNOWN_TOPIC_OR_PARTITION
    if is_planted(b"unfenced-follower"):
        return 0
    if leader_epoch < p.leader_epoch:
        return FENCED_LEADER_EPOCH
    if leader_epoch > p.leader_epoch:
        return UNKNOWN_LEADER_EPOCH
    return 0 if p.role == ROLE_FOLLOWER else NOT_LEADER_OR_FOLLOWER


cdef int checked(Partition *p, int32_t current_epoch, bint any_replica) noexcept nogil:
    cdef int error
    mutex_lock(&p.log.lock)
    error = partition_role_error(p, current_epoch, any_replica)
    if error == 0 and (p.log.state == LOG_FAILED or load32(&p.log.dir.offline)):
        error = KAFKA_STORAGE_ERROR
    mutex_unlock(&p.log.lock)
    return error


cdef int partition_check_leader(Partition *p, int32_t current_epoch) noexcept nogil:
    return checked(p, current_epoch, False)


cdef int partition_check_replica(Partition *p, int32_t current_epoch) noexcept nogil:
    return checked(p, current_epoch, True)


# --- appends ---

cdef int append_error(const Partition *p, int acks) noexcept nogil:
    cdef int error = partition_role_error(p, NO_EPOCH, False)
    if error == 0 and acks < 0 and p.in_sync_count < replicas_least_isr(p):
        error = NOT_ENOUGH_REPLICAS
    return error


cdef void acknowledge_at(const Partition *p, int acks, int64_t end_offset, bint flushes,
                         Acknowledgement *ack) noexcept nogil:
    """Sets the condition for sending a response. With `flushes`, the response waits for the sync that covers
    `end_offset`."""
    ack.at = end_offset
    ack.generation = p.generation
    ack.kind = WAIT_ACKS
    if flushes:
        ack.kind = WAIT_SYNCED if acks > 0 else WAIT_ACKS_SYNCED
    if acks == 0 or (acks > 0 and not flushes) or end_offset <= satisfied_by(p, ack.kind):
        ack.at = -1


cdef bint flush_is_due(const Partition *p, const AppendInfo *info) noexcept nogil:
    """Returns whether flush.messages requires a sync now. A duplicate batch waits for the sync that the first append of
    this batch requested."""
    if info.duplicate:
        return p.log.synced_offset <= info.last_offset < p.log.commit_offset
    return p.log.end_offset - p.log.synced_offset >= p.log.config.flush_messages


cdef int partition_append(Partition *p, uint8_t *records, size_t size, int acks, int origin, Waiter *blocked,
                          AppendInfo *info, Acknowledgement *ack, WakeList *wakes) noexcept nogil:
    cdef Prepared prepared
    cdef LogConfig *config
    cdef bint more = False
    cdef bint sync = False
    cdef int error
    cdef uint8_t header[HEADER_BYTES]
    cdef size_t kept = min(size, <size_t> HEADER_BYTES)
    ack.at = -1
    wakes.count = 0
    wakes.why = WAKE_READY
    append_info_init(info)
    memcpy(header, records, kept)
    config = log_hold_config(&p.log)
    error = log_prepare(config, log_now_ms(&p.log), records, size, origin, &prepared, info)
    config_release(config)
    mutex_lock(&p.log.lock)
    if error == 0 or p.role != ROLE_LEADER:
        error = append_error(p, acks)
    if error == 0:
        error = log_append_prepared(&p.log, &prepared, p.leader_epoch, blocked, info)
    if error == 0:
        more = partition_advance(p, wakes)
        sync = flush_is_due(p, info)
        acknowledge_at(p, acks, info.last_offset + 1, sync, ack)
        if sync:
            log_want_synced(&p.log, info.last_offset + 1)
    if error != LOG_BLOCKED:
        traffic_produced(&p.traffic, error, <int64_t> size, info.last_offset - info.first_offset + 1, &info.validated)
    mutex_unlock(&p.log.lock)
    if error == LOG_BLOCKED:
        # The caller tries again with these bytes. They must be the original ones, because validation rejects a client's
        # batch that already has the broker's timestamp.
        memcpy(records, header, kept)
    prepared_free(&prepared)
    if sync:
        log_call_committer(&p.log)
    if more:
        partition_wake_rest(p, wakes)
    return error


cdef void partition_open_ahead(Partition *p) noexcept nogil:
    mutex_lock(&p.log.lock)
    if p.role == ROLE_LEADER:
        log_open_ahead(&p.log)
    mutex_unlock(&p.log.lock)


cdef int append_whole(Partition *p, const uint8_t *records, size_t size, int32_t most_epoch, bint follows,
                      Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil:
    cdef BatchesResult checked
    cdef bint more = False
    cdef bint sync = False
    cdef int error
    wakes.count = 0
    wakes.why = WAKE_READY
    append_info_init(info)
    error = check_batches(records, size, LAST_EPOCH if is_planted(b"newer-epoch-appended") else most_epoch, &checked)
    if error != 0:
        info.validated.message = checked.message
        return error
    mutex_lock(&p.log.lock)
    if follows:
        error = partition_follower_error(p, most_epoch)
    elif p.role == ROLE_GONE:
        error = UNKNOWN_TOPIC_OR_PARTITION
    if error == 0:
        error = log_append_checked(&p.log, records, &checked, blocked, info)
    if error == 0:
        more = partition_advance(p, wakes)
        sync = follows and flush_is_due(p, info)
        if follows:
            p.traffic.replication_in += <int64_t> size
            if p.is_added:
                p.traffic.reassignment_in += <int64_t> size
        if sync:
            log_want_synced(&p.log, info.last_offset + 1)
    mutex_unlock(&p.log.lock)
    if sync:
        log_call_committer(&p.log)
    if more:
        partition_wake_rest(p, wakes)
    return error


cdef int partition_append_as_follower(Partition *p, const uint8_t *records, size_t size, int32_t leader_epoch,
                                      Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil:
    return append_whole(p, records, size, leader_epoch, True, blocked, info, wakes)


cdef int partition_append_replicated(Partition *p, const uint8_t *records, size_t size, int32_t most_epoch,
                                     Waiter *blocked, AppendInfo *info, WakeList *wakes) noexcept nogil:
    return append_whole(p, records, size, most_epoch, False, blocked, info, wakes)


# --- reads ---

cdef void fill_view(const Partition *p, FetchView *view) noexcept nogil:
    view.high_watermark = p.high_watermark
    view.last_stable_offset = p.last_stable_offset
    view.log_start_offset = p.log.log_start_offset
    view.end_offset = p.log.end_offset
    view.leader_id = p.leader_id
    view.leader_epoch = p.leader_epoch
    view.diverging_end_offset = -1
    view.diverging_epoch = -1
    view.is_in_sync = view.is_held_back = view.is_added = False


cdef bint partition_is_behind(const Partition *p) noexcept nogil:
    cdef int32_t last = p.log.epoch_count - 1
    return (p.role == ROLE_LEADER and last >= 0 and p.log.epochs[last].epoch == p.leader_epoch
            and p.log.epochs[last].start_offset > p.high_watermark)


cdef void partition_view(Partition *p, FetchView *view) noexcept nogil:
    mutex_lock(&p.log.lock)
    fill_view(p, view)
    mutex_unlock(&p.log.lock)


cdef int64_t partition_monotonic_ms(const Partition *p) noexcept nogil:
    return p.log.clock.monotonic_ns(p.log.clock.self) // 1000000


cdef Partition *partition_of_link(IsrLink *link) noexcept nogil:
    cdef Partition layout  # used only to compute the offset of the field
    return <Partition *> (<char *> link - (<char *> &layout.link - <char *> &layout))


cdef int64_t partition_high_watermark(Partition *p) noexcept nogil:
    cdef int64_t high_watermark
    mutex_lock(&p.log.lock)
    high_watermark = p.high_watermark
    mutex_unlock(&p.log.lock)
    return high_watermark


cdef bint partition_satisfies(Partition *p, int kind, int64_t at) noexcept nogil:
    cdef bint satisfied
    mutex_lock(&p.log.lock)
    satisfied = at <= satisfied_by(p, kind)
    mutex_unlock(&p.log.lock)
    return satisfied


cdef int check_divergence(const Partition *p, int32_t last_fetched_epoch, int64_t offset,
                          FetchView *view) noexcept nogil:
    """Checks for diverging logs (KIP-595). The logs diverge if the fetcher's last epoch ended earlier in this log, or
    if this log lacks that epoch but has an older one. In that case, sets the fields of `view` that say where the
    fetcher must truncate its log. Returns OFFSET_OUT_OF_RANGE if the epoch is above all epochs of this log. Also
    returns it if the fetcher's log ends below the start of this log: such a fetcher must begin again at that start,
    whatever its epoch."""
    cdef int32_t epoch
    cdef int64_t end_offset
    epochs_end(&p.log, last_fetched_epoch, &epoch, &end_offset)
    if epoch < 0 or end_offset < 0 or offset < p.log.log_start_offset:
        return OFFSET_OUT_OF_RANGE
    if epoch < last_fetched_epoch or end_offset < offset:
        view.diverging_epoch = epoch
        view.diverging_end_offset = end_offset
    return 0


cdef int check_follower(Partition *p, const FollowerFetch *fetch, int32_t current_epoch, bint notes,
                        WakeList *wakes, bint *more) noexcept nogil:
    """Checks and notes a follower's fetch. Call this with the lock held. Does not note a position outside the log,
    because the follower is about to truncate its log or to begin it again."""
    cdef int error = replicas_check(p, fetch.broker_id, current_epoch)
    if error != 0 or not notes or fetch.offset > p.log.end_offset or fetch.offset < p.log.log_start_offset:
        return error
    error = replicas_note(p, fetch, current_epoch)
    if error == 0:
        more[0] = partition_advance(p, wakes)
    return error


cdef int partition_followed(Partition *p, const FollowerFetch *fetch, int32_t current_epoch,
                            WakeList *wakes) noexcept nogil:
    cdef bint more = False
    cdef int error
    wakes.count = 0
    wakes.why = WAKE_READY
    mutex_lock(&p.log.lock)
    error = partition_role_error(p, current_epoch, False)
    if error == 0:
        error = check_follower(p, fetch, current_epoch, True, wakes, &more)
    mutex_unlock(&p.log.lock)
    if more:
        partition_wake_rest(p, wakes)
    return error


cdef void read_asked_init(ReadAsked *asked, int64_t offset, int64_t max_bytes, int isolation) noexcept nogil:
    memset(asked, 0, sizeof(ReadAsked))
    asked.offset = offset
    asked.max_bytes = max_bytes
    asked.isolation = isolation
    asked.current_epoch = asked.last_fetched_epoch = NO_EPOCH


cdef bint is_added(const Partition *p, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    if p.adding != NULL:
        for i in range(1, p.adding[0] + 1):
            if p.adding[i] == broker_id:
                return True
    return False


cdef void judge_follower(const Partition *p, const ReadAsked *asked, FetchView *view) noexcept nogil:
    """Decides whether the follower is throttled. Throttles only a replica outside the ISR, so that throttling never
    shrinks the ISR (KIP-73)."""
    cdef const Follower *follower = replicas_find(p, asked.follower.broker_id)
    view.is_in_sync = follower != NULL and follower.in_sync
    view.is_added = is_added(p, asked.follower.broker_id)
    view.is_held_back = (asked.over_quota and not view.is_in_sync
                         and load32(&p.throttled) & THROTTLED_LEADER != 0)


cdef int partition_read(Partition *p, const ReadAsked *asked, ReadResult *out, FetchView *view,
                        WakeList *wakes) noexcept nogil:
    cdef bint more = False
    cdef int64_t bound
    cdef int error = 0
    memset(out, 0, sizeof(ReadResult))
    wakes.count = 0
    wakes.why = WAKE_READY
    mutex_lock(&p.log.lock)
    p.traffic.fetches += asked.counts
    fill_view(p, view)
    if asked.isolation != READ_LOCAL:
        error = partition_role_error(p, asked.current_epoch, asked.from_any_replica)
    if error == 0 and asked.follower != NULL:
        error = replicas_check(p, asked.follower.broker_id, asked.current_epoch)
    if error == 0 and asked.last_fetched_epoch >= 0:
        error = check_divergence(p, asked.last_fetched_epoch, asked.offset, view)
    if error == 0 and asked.follower != NULL and view.diverging_end_offset < 0:
        error = check_follower(p, asked.follower, asked.current_epoch, asked.notes, wakes, &more)
        view.high_watermark = p.high_watermark
        view.last_stable_offset = p.last_stable_offset
    if asked.isolation >= READ_LOG_END:
        bound = p.log.end_offset
    else:
        bound = p.last_stable_offset if asked.isolation == READ_COMMITTED else p.high_watermark
    if error == 0 and asked.follower != NULL:
        judge_follower(p, asked, view)
    if error == 0 and asked.reader != NULL:
        readers_join(p, asked, FOREVER if view.is_held_back else max(asked.offset, bound))
    mutex_unlock(&p.log.lock)
    if more:
        partition_wake_rest(p, wakes)
    if error == 0 and view.diverging_end_offset < 0 and not view.is_held_back:
        if asked.slowly:
            error = log_read_slowly(&p.log, asked.offset, bound, asked.max_bytes, asked.min_one, out)
        else:
            error = log_read(&p.log, asked.offset, bound, asked.max_bytes, asked.min_one, out)
    if error > 0:
        view.high_watermark = view.last_stable_offset = view.log_start_offset = -1
    return error


cdef void partition_epoch_end(Partition *p, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil:
    mutex_lock(&p.log.lock)
    epochs_end(&p.log, epoch, found_epoch, end_offset)
    mutex_unlock(&p.log.lock)


# --- upkeep ---

cdef void partition_restore(Partition *p, int64_t high_watermark) noexcept nogil:
    mutex_lock(&p.log.lock)
    if high_watermark > p.log.end_offset:
        high_watermark = p.log.end_offset
    if high_watermark < p.log.log_start_offset:
        high_watermark = p.log.log_start_offset
    p.high_watermark = high_watermark
    advance_high_watermark(p)
    mutex_unlock(&p.log.lock)


cdef int partition_assign_topic_id(Partition *p, const uint8_t *topic_id, Waiter *blocked) noexcept nogil:
    cdef int held = log_hold_still(&p.log, blocked)
    cdef int result = 0
    if held == LOG_BLOCKED:
        return LOG_BLOCKED
    # If the log has files, it gets partition.metadata now, before its next append. Otherwise it writes that file when
    # it is opened. An offline log gets the file after a restart.
    if held == 0 and p.log.segments != NULL and not is_made_id(topic_id):
        result = write_partition_metadata(p.log.dir.disk, p.log.path, topic_id)
    if result < 0 and not is_short_of_files(result):
        log_go_on(&p.log)
        log_fail(&p.log, -result)
        return result
    mutex_lock(&p.log.lock)
    memcpy(p.topic_id, topic_id, 16)
    p.log.topic_id = NULL if is_made_id(topic_id) else p.topic_id
    mutex_unlock(&p.log.lock)
    if held == 0:
        log_go_on(&p.log)
    return 0


cdef int partition_delete_records(Partition *p, int64_t offset, int64_t *low_watermark,
                                  Acknowledgement *deleted) noexcept nogil:
    cdef int error
    low_watermark[0] = deleted.at = -1
    deleted.kind = WAIT_DELETED
    mutex_lock(&p.log.lock)
    error = partition_role_error(p, NO_EPOCH, False)
    if offset < 0:
        offset = p.high_watermark if offset == -1 else FOREVER
    if error == 0 and offset > p.high_watermark:
        error = OFFSET_OUT_OF_RANGE
    # One hold of the lock covers the check and the deletion. If the lock were free in between, this broker could begin
    # to follow another leader, which may have other records below this offset after an unclean election.
    if error == 0:
        error = log_hide_below(&p.log, offset)
    if error == 0:
        low_watermark[0] = replicas_low_watermark(p)
        deleted.at = offset if low_watermark[0] < offset else -1
        deleted.generation = p.generation
    mutex_unlock(&p.log.lock)
    return error if error != 0 else log_drop_hidden(&p.log)


cdef int64_t partition_low_watermark(Partition *p) noexcept nogil:
    cdef int64_t low
    mutex_lock(&p.log.lock)
    low = replicas_low_watermark(p)
    mutex_unlock(&p.log.lock)
    return low


cdef int partition_expire_producers(Partition *p) noexcept nogil:
    cdef int gone = 0
    mutex_lock(&p.log.lock)
    if p.log.producers != NULL and p.log.producers.count:
        gone = producers_expire(p.log.producers, log_now_ms(&p.log), p.log.config.producer_id_expiration_ms)
    mutex_unlock(&p.log.lock)
    return gone


def live_count():
    """Returns the number of partitions in this process that have not been freed."""
    return load32(&live_partitions)
