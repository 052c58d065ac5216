"""Implements ask.pxd: writes the next request of a fetcher (RemoteLeaderEndPoint.buildFetch, FetchSessionHandler)."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int16_t, int32_t, uint8_t
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.atomics cimport add64, load32
from kafkacore._fast.follow.followed cimport (
    ASK_END, ASK_FETCH, ASK_NOTHING, ASK_START, FOLLOW_FETCHES, FOLLOW_GONE, FOLLOW_SYNCS, Followed, Link,
    fetcher_forget, followed_delay, followed_is_in_session, link_remove, of_all, of_changed, of_line,
)
from kafkacore._fast.log.partition cimport partition_monotonic_ms
from kafkacore._fast.log.replication_quota cimport THROTTLED_FOLLOWER, quota_exceeded, quota_has_bound
from kafkacore._fast.schema.view cimport Arena, arena_alloc, arena_free, arena_init, view_default, view_write
from kafkacore._fast.schema.wire cimport (
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsTopic, fetch_request_program, list_offsets_request_program,
)

cdef enum:
    # A partition takes 170 bytes of the arena. A request names only followed partitions, so their number limits the
    # size.
    ARENA_BYTES = 1 << 30
    REPLICA_STATE_SINCE = 15
    LATEST = -1
    EARLIEST = -2
    OFFSETS_AT_ONCE = 64           # a ListOffsets request names at most this many partitions
    # The longest wait of a Fetch, in ms, while logs are being opened, rolled or truncated. The wait is short, so that
    # the partitions of these logs soon join the next Fetch.
    BUSY_WAIT_MS = 5
    SYNC_WAIT_MS = 1               # the same while logs are only being synced; producers wait for these syncs
    OFFSETS_TIMEOUT_MS = 30000


# --- Fetch ---

ctypedef struct Draft:
    FetchRequest body
    FetchTopic *topics
    FetchPartition *partitions
    ForgottenTopic *forgotten
    int32_t *indexes
    int32_t named
    int32_t dropped


cdef bint draft_begin(Fetcher *f, Draft *draft, Arena *arena, int32_t most) noexcept nogil:
    draft.named = draft.dropped = 0
    view_default(fetch_request_program(f.fetch_version), &draft.body)
    draft.body.max_wait_ms = f.limits.max_wait_ms
    if f.busy:
        draft.body.max_wait_ms = min(SYNC_WAIT_MS if f.busy == f.syncing else BUSY_WAIT_MS, f.limits.max_wait_ms)
    draft.body.min_bytes = f.limits.min_bytes
    draft.body.max_bytes = f.limits.response_max_bytes
    draft.body.session_id = f.session_id
    draft.body.session_epoch = f.session_epoch
    if f.fetch_version >= REPLICA_STATE_SINCE:
        draft.body.replica_state.replica_id = f.limits.node_id
        draft.body.replica_state.replica_epoch = f.broker_epoch
    else:
        draft.body.replica_id = f.limits.node_id
    draft.topics = <FetchTopic *> arena_alloc(arena, most * sizeof(FetchTopic))
    draft.partitions = <FetchPartition *> arena_alloc(arena, most * sizeof(FetchPartition))
    draft.forgotten = <ForgottenTopic *> arena_alloc(arena, most * sizeof(ForgottenTopic))
    draft.indexes = <int32_t *> arena_alloc(arena, most * sizeof(int32_t))
    draft.body.topics.items = draft.topics
    draft.body.forgotten_topics_data.items = draft.forgotten
    return most == 0 or draft.indexes != NULL


cdef bint goes_on(const uint8_t *last_topic_id, const Followed *each) noexcept nogil:
    """Returns whether the partition belongs to the topic entry that was added last. Consecutive partitions of a topic
    share an entry."""
    return last_topic_id != NULL and memcmp(last_topic_id, each.partition.topic_id, 16) == 0


cdef void name(Draft *draft, Followed *each) noexcept nogil:
    cdef Fetcher *f = each.fetcher
    cdef int32_t count = draft.body.topics.count
    cdef FetchPartition *asked = &draft.partitions[draft.named]
    if not goes_on(draft.topics[count - 1].topic_id if count else NULL, each):
        memcpy(draft.topics[count].topic_id, each.partition.topic_id, 16)
        draft.topics[count].topic.data = <const unsigned char *> each.partition.topic
        draft.topics[count].topic.size = each.partition.topic_size
        draft.topics[count].partitions.items = asked
        draft.body.topics.count = count = count + 1
    draft.topics[count - 1].partitions.count += 1
    draft.named += 1
    asked.partition = each.partition.index
    asked.current_leader_epoch = each.at.leader_epoch
    asked.fetch_offset = each.at.end_offset
    asked.last_fetched_epoch = each.at.last_epoch
    asked.log_start_offset = each.at.log_start_offset
    asked.partition_max_bytes = f.limits.max_bytes
    asked.high_watermark = 0x7FFFFFFFFFFFFFFF
    if not followed_is_in_session(each):
        each.sent_in = f.session_number
        f.session_size += 1
    each.sent = each.at


cdef void drop(Draft *draft, Followed *each) noexcept nogil:
    cdef int32_t count = draft.body.forgotten_topics_data.count
    cdef int32_t *index = &draft.indexes[draft.dropped]
    if not goes_on(draft.forgotten[count - 1].topic_id if count else NULL, each):
        memcpy(draft.forgotten[count].topic_id, each.partition.topic_id, 16)
        draft.forgotten[count].topic.data = <const unsigned char *> each.partition.topic
        draft.forgotten[count].topic.size = each.partition.topic_size
        draft.forgotten[count].partitions.items = index
        draft.body.forgotten_topics_data.count = count = count + 1
    draft.forgotten[count - 1].partitions.count += 1
    draft.dropped += 1
    index[0] = each.partition.index
    each.sent_in = 0
    each.fetcher.session_size -= 1


cdef bint is_news(const Followed *each) noexcept nogil:
    return (each.sent.end_offset != each.at.end_offset or each.sent.last_epoch != each.at.last_epoch
            or each.sent.leader_epoch != each.at.leader_epoch
            or each.sent.log_start_offset != each.at.log_start_offset)


cdef int32_t count_changed(Fetcher *f) noexcept nogil:
    cdef int32_t count = 0
    cdef Link *link = f.changed.next
    while link != &f.changed:
        count += 1
        link = link.next
    return count


cdef void draft_changes(Fetcher *f, Draft *draft) noexcept nogil:
    """Adds the changes that the leader's session does not have yet. In a request that begins a session, `draft_all`
    adds the other partitions."""
    cdef Followed *each
    while f.changed.next != &f.changed:
        each = of_changed(f.changed.next)
        link_remove(&each.in_changed)
        if each.state != FOLLOW_FETCHES and followed_is_in_session(each):
            drop(draft, each)
        elif each.state == FOLLOW_FETCHES and f.session_epoch and (not followed_is_in_session(each) or is_news(each)):
            name(draft, each)
        if each.state == FOLLOW_GONE and not each.job_is_out:
            fetcher_forget(each)


cdef void draft_all(Fetcher *f, Draft *draft) noexcept nogil:
    cdef Link *link = f.all.next
    cdef Followed *each
    while link != &f.all:
        each = of_all(link)
        link = link.next
        if each.state == FOLLOW_FETCHES:
            name(draft, each)


cdef void hold_back(Fetcher *f) noexcept nogil:
    """Leaves throttled partitions out of the request, and out of the session, while the quota is used up
    (RemoteLeaderEndPoint.shouldFollowerThrottle). A replica that has caught up is not left out, so throttling never
    shrinks an ISR."""
    cdef Link *link = f.all.next
    cdef Followed *each
    if f.limits.quota == NULL or not quota_has_bound(f.limits.quota):
        return
    while link != &f.all:
        each = of_all(link)
        link = link.next
        if each.state != FOLLOW_FETCHES or each.lag == 0 or not load32(&each.partition.throttled) & THROTTLED_FOLLOWER:
            continue
        if not quota_exceeded(f.limits.quota, partition_monotonic_ms(each.partition)):
            return
        followed_delay(each)


cdef void fetcher_choose_version(Fetcher *f) noexcept nogil:
    cdef int16_t version = FETCH_BY_NAME if f.without_id else f.newest_fetch
    if f.under_way != ASK_NOTHING or version == f.fetch_version:
        return
    if version == FETCH_BY_NAME or f.fetch_version == FETCH_BY_NAME:
        f.session_epoch = 0  # a session identifies its topics by name or by id, but never by both
    f.fetch_version = version


cdef bint drops_some(const Fetcher *f) noexcept nogil:
    """Returns whether the next Fetch removes from the session a partition that may not come back to it. A partition
    whose log is being synced comes back."""
    cdef Link *link = f.changed.next
    cdef Followed *each
    while link != &f.changed:
        each = of_changed(link)
        link = link.next
        if each.state != FOLLOW_FETCHES and each.state != FOLLOW_SYNCS and followed_is_in_session(each):
            return True
    return False


cdef bint session_syncs(const Fetcher *f) noexcept nogil:
    """Returns whether the session contains only partitions whose logs are being synced, and no partition is about to
    join it. A Fetch would only remove these partitions from the session, and would soon add them again."""
    cdef int32_t count = 0
    cdef Link *link = f.changed.next
    cdef Followed *each
    if f.session_epoch == 0:
        return False
    while link != &f.changed:
        each = of_changed(link)
        link = link.next
        if each.state == FOLLOW_SYNCS:
            count += followed_is_in_session(each)
        elif each.state == FOLLOW_FETCHES or followed_is_in_session(each):
            return False
    return count > 0 and count == f.session_size


cdef int ask_fetch(Fetcher *f, Writer *out, Arena *arena) noexcept nogil:
    cdef Draft draft
    cdef int gap_count
    hold_back(f)
    if session_syncs(f):
        return ASK_NOTHING
    if f.fetch_version == FETCH_BY_NAME and drops_some(f):
        # If a topic was deleted and created again, the new topic has the same name. Within one session, a leader could
        # not distinguish the removed partition from the new one.
        f.session_epoch = 0
    f.was_full = f.session_epoch == 0
    if f.was_full:
        f.session_number += 1
        f.session_size = 0
    if not draft_begin(f, &draft, arena, f.count if f.was_full else count_changed(f)):
        return -ENOMEM
    draft_changes(f, &draft)
    if f.was_full:
        draft_all(f, &draft)
        if draft.named == 0:
            return ASK_NOTHING
    elif f.session_size == 0 and draft.dropped == 0:
        return ASK_NOTHING
    view_write(fetch_request_program(f.fetch_version), &draft.body, out, NULL, 0, &gap_count)
    return -ENOMEM if out.bad else ASK_FETCH


# --- ListOffsets ---

cdef int ask_offsets(Fetcher *f, Link *asks, int32_t timestamp, Writer *out, Arena *arena) noexcept nogil:
    cdef ListOffsetsRequest body
    cdef ListOffsetsTopic *topics = <ListOffsetsTopic *> arena_alloc(arena, OFFSETS_AT_ONCE * sizeof(ListOffsetsTopic))
    cdef ListOffsetsPartition *asked
    cdef Followed *each
    cdef Link *link = asks.next
    cdef int gap_count
    asked = <ListOffsetsPartition *> arena_alloc(arena, OFFSETS_AT_ONCE * sizeof(ListOffsetsPartition))
    if topics == NULL or asked == NULL:
        return -ENOMEM
    view_default(list_offsets_request_program(f.offsets_version), &body)
    body.replica_id = f.limits.node_id
    body.timeout_ms = OFFSETS_TIMEOUT_MS
    body.topics.items = topics
    while link != asks and body.topics.count < OFFSETS_AT_ONCE:
        each = of_line(link)
        link = link.next
        each.is_asked = True
        # Each partition gets its own topic entry, because a ListOffsets request rarely names many partitions.
        topics[body.topics.count].name.data = <const unsigned char *> each.partition.topic
        topics[body.topics.count].name.size = each.partition.topic_size
        topics[body.topics.count].partitions.items = &asked[body.topics.count]
        topics[body.topics.count].partitions.count = 1
        asked[body.topics.count].partition_index = each.partition.index
        asked[body.topics.count].current_leader_epoch = each.at.leader_epoch
        asked[body.topics.count].timestamp = timestamp
        body.topics.count += 1
    view_write(list_offsets_request_program(f.offsets_version), &body, out, NULL, 0, &gap_count)
    return -ENOMEM if out.bad else (ASK_END if timestamp == LATEST else ASK_START)


cdef int fetcher_would_ask(const Fetcher *f) noexcept nogil:
    if f.asks_end.next != &f.asks_end:
        return ASK_END
    return ASK_START if f.asks_start.next != &f.asks_start else ASK_FETCH


cdef int fetcher_ask(Fetcher *f, Writer *out) noexcept nogil:
    cdef Arena arena
    cdef int asked = fetcher_would_ask(f)
    if f.under_way != ASK_NOTHING:
        return ASK_NOTHING
    arena_init(&arena, ARENA_BYTES)
    if asked == ASK_END:
        asked = ask_offsets(f, &f.asks_end, LATEST, out, &arena)
    elif asked == ASK_START:
        asked = ask_offsets(f, &f.asks_start, EARLIEST, out, &arena)
    else:
        fetcher_choose_version(f)
        asked = ask_fetch(f, out, &arena)
    arena_free(&arena)
    if asked > ASK_NOTHING:
        f.under_way = asked
        add64(&f.counts.requests, 1)
    return asked
