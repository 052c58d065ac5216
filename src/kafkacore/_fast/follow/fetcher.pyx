"""Implements fetcher.pxd: the start, the end and the timing of a fetcher."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.atomics cimport store32, store64
from kafkacore._fast.follow.absorb cimport absorb_end
from kafkacore._fast.follow.cut cimport cut_or_go_on, cut_woken
from kafkacore._fast.follow.followed cimport (
    ASK_NOTHING, DELAYS, FOLLOW_BLOCKED, FOLLOW_CUTS, FOLLOW_FAILED, FOLLOW_GONE, FOLLOW_SYNCS, Followed, Link,
    Position, fetcher_add, fetcher_find, fetcher_forget, followed_drop_kept, followed_go_on, followed_is_in_session,
    followed_lags, followed_set, link_init, of_all, of_line,
)
from kafkacore._fast.follow.local cimport local_has_failed
from kafkacore._fast.follow.take cimport take_kept
from kafkacore._fast.log.partition cimport partition_unwait
from kafkacore._fast.wait.mail cimport inbox_init_in
from kafkacore._fast.wait.park cimport Parked


cdef Fetcher *fetcher_new(const FetcherLimits *limits, Inbox *inbox, Agenda *agenda, int *error) noexcept nogil:
    cdef Fetcher *f = <Fetcher *> calloc(1, sizeof(Fetcher))
    cdef int i
    error[0] = -ENOMEM
    if f == NULL:
        return NULL
    f.inbox = inbox
    if inbox == NULL:
        f.inbox = &f.own_inbox
        error[0] = inbox_init_in(f.inbox, agenda)
        if error[0] < 0:
            free(f)
            return NULL
    f.refs = 1
    f.limits = limits[0]
    f.broker_epoch = -1
    f.on_ready = take_kept
    f.session_number = 1
    link_init(&f.all)
    link_init(&f.changed)
    for i in range(DELAYS):
        link_init(&f.delayed[i])
    link_init(&f.asks_end)
    link_init(&f.asks_start)
    error[0] = 0
    return f


# --- partitions ---

cdef void resume(Parked *parked, int why) noexcept nogil:
    """Runs when the log has been synced, or has become ready for the append or the truncation that waits for it."""
    cdef Followed *each = <Followed *> parked
    if each.state == FOLLOW_BLOCKED:
        take_kept(each)
    elif each.state == FOLLOW_CUTS:
        cut_woken(each)
    elif each.state == FOLLOW_SYNCS:
        followed_go_on(each)
    if each.fetcher.on_mail != NULL:
        each.fetcher.on_mail(each.fetcher)


cdef void let_go(Followed *each) noexcept nogil:
    """Drops the records that wait for the log, and the truncation that waits for the log."""
    partition_unwait(each.partition, &each.waiter)
    followed_drop_kept(each)


cdef Followed *take_over(Fetcher *f, Followed *before, Partition *p) noexcept nogil:
    """Gives a followed partition its new log. The partition was removed from this broker and created again, and the
    leader's session still contains it."""
    cdef Position sent = before.sent
    cdef int64_t sent_in = before.sent_in
    cdef Followed *each
    let_go(before)
    followed_set(before, FOLLOW_GONE)
    fetcher_forget(before)  # may free it
    each = fetcher_add(f, p)
    if each != NULL:
        each.sent = sent
        each.sent_in = sent_in
    return each


cdef int fetcher_follow(Fetcher *f, Partition *p, int32_t leader_epoch) noexcept nogil:
    cdef Followed *each = fetcher_find(f, p.topic_id, p.index)
    if each == NULL:
        each = fetcher_add(f, p)
    elif each.partition != p:
        each = take_over(f, each, p)
    elif (each.at.leader_epoch == leader_epoch and each.state != FOLLOW_FAILED and each.state != FOLLOW_GONE
          and not local_has_failed(p)):
        return 0
    else:
        let_go(each)
    if each == NULL:
        return -ENOMEM
    each.parked.resume = resume
    each.at.leader_epoch = leader_epoch
    each.refused = 0
    followed_lags(each, -1)
    cut_or_go_on(each)
    return 0


cdef void stop(Followed *each) noexcept nogil:
    let_go(each)
    followed_lags(each, -1)
    followed_set(each, FOLLOW_GONE)
    if not followed_is_in_session(each) and not each.job_is_out:
        fetcher_forget(each)


cdef void fetcher_stop(Fetcher *f, Partition *p) noexcept nogil:
    cdef Followed *each = fetcher_find(f, p.topic_id, p.index)
    if each != NULL and each.partition == p and each.state != FOLLOW_GONE:
        stop(each)


cdef void fetcher_stop_all(Fetcher *f) noexcept nogil:
    cdef Link *link = f.all.next
    cdef Followed *each
    absorb_end(f)
    f.session_number += 1
    while link != &f.all:
        each = of_all(link)
        link = link.next
        stop(each)
    f.session_id = f.session_epoch = f.session_size = 0


# --- connection and time ---

cdef void fetcher_connected(Fetcher *f, int16_t fetch_version, int16_t offsets_version) noexcept nogil:
    f.newest_fetch = fetch_version
    f.offsets_version = offsets_version


cdef void fetcher_failed(Fetcher *f) noexcept nogil:
    cdef Link *link = f.all.next
    cdef Followed *each
    absorb_end(f)
    f.under_way = ASK_NOTHING
    f.session_epoch = 0  # the next request still has the old session id, so that the leader drops that session
    f.session_number += 1
    f.session_size = 0
    # The new session does not contain partitions that are no longer followed, so the follower does not name
    # them to the leader.
    while link != &f.all:
        each = of_all(link)
        link = link.next
        if each.state == FOLLOW_GONE and not each.job_is_out:
            fetcher_forget(each)


cdef void fetcher_advance(Fetcher *f, int64_t now_ms) noexcept nogil:
    cdef int i
    cdef Link *line
    f.now_ms = now_ms
    for i in range(DELAYS):
        line = &f.delayed[i]
        while line.next != line and of_line(line.next).due_ms <= now_ms:
            followed_go_on(of_line(line.next))


cdef int64_t fetcher_due_ms(const Fetcher *f) noexcept nogil:
    cdef int i
    cdef const Link *line
    cdef int64_t due_ms = -1
    for i in range(DELAYS):
        line = &f.delayed[i]
        if line.next != line and (due_ms < 0 or of_line(line.next).due_ms < due_ms):
            due_ms = of_line(line.next).due_ms
    return due_ms


cdef void fetcher_count(Fetcher *f) noexcept nogil:
    cdef Link *link = f.all.next
    cdef Followed *each
    cdef int64_t most = 0
    cdef int32_t failed = 0
    while link != &f.all:
        each = of_all(link)
        link = link.next
        most = max(most, each.lag)
        failed += each.state == FOLLOW_FAILED
    store64(&f.counts.most_lag, most)
    store32(&f.counts.partitions, f.count)
    store32(&f.counts.failed, failed)
