"""Implements absorb.pxd: reads answers and applies them (AbstractFetcherThread.processFetchRequest,
FetchSessionHandler)."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kafkacore._fast.base.cursor cimport Reader, reader_init
from kafkacore._fast.base.error_codes cimport (
    FENCED_LEADER_EPOCH, FETCH_SESSION_ID_NOT_FOUND, INCONSISTENT_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkacore._fast.base.planted cimport is_planted
from kafkacore._fast.follow.ask cimport FETCH_BY_NAME
from kafkacore._fast.follow.cut cimport cut_begin
from kafkacore._fast.follow.followed cimport (
    ASK_END, ASK_FETCH, ASK_NOTHING, BEFELL_CUT, BEFELL_CUT_TO_END, BEFELL_FENCED, BEFELL_REFUSED,
    BEFELL_RESTART, CUT_ALL, CUT_END, FOLLOW_ASKS_END, FOLLOW_ASKS_START, FOLLOW_FETCHES, Followed, Link, Taking,
    befell, fetcher_find, fetcher_find_named, followed_delay, followed_fail, followed_is_in_session, followed_lags,
    followed_refused, followed_set, link_add, of_line,
)
from kafkacore._fast.follow.local cimport local_divergence, local_position
from kafkacore._fast.follow.take cimport take_records
from kafkacore._fast.schema.view cimport Arena, arena_free, arena_init, view_read
from kafkacore._fast.schema.wire cimport (
    FetchableTopicResponse, ListOffsetsPartitionResponse, ListOffsetsResponse,
    ListOffsetsTopicResponse, PartitionData, fetch_response_program, list_offsets_response_program,
)

cdef enum:
    ARENA_BYTES = 1 << 28      # the memory for the partitions of an answer; enough for two million partitions
    LAST_EPOCH = 0x7FFFFFFF
    PARTITION_COST = 512       # each partition counts as this many bytes of a part, plus its records

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF


# --- the session ---

cdef void session_goes_on(Fetcher *f, int16_t error, int32_t session_id) noexcept nogil:
    """Decides after an answer which session id and epoch the next request uses (FetchSessionHandler.handleResponse)."""
    if error != 0:
        f.session_id = 0 if error == FETCH_SESSION_ID_NOT_FOUND else f.session_id
        f.session_epoch = 0
    elif session_id == 0:
        f.session_id = f.session_epoch = 0  # the leader keeps no session for us, so every fetch is full
    else:
        f.session_id = session_id
        f.session_epoch = 1 if f.session_epoch == LAST_EPOCH else f.session_epoch + 1


# --- one partition of a Fetch ---

cdef bint is_as_asked(const Followed *each) noexcept nogil:
    """Returns whether the answer belongs to the position from which the partition fetches now. Returns False if, since
    the request, the partition has been truncated, has got a new leader epoch, or has been stopped and followed
    again."""
    return (each.state == FOLLOW_FETCHES and followed_is_in_session(each)
            and each.sent.end_offset == each.at.end_offset and each.sent.last_epoch == each.at.last_epoch
            and (each.sent.leader_epoch == each.at.leader_epoch or is_planted(b"unfenced-follower")))


cdef void take_divergence(Followed *each, const PartitionData *data) noexcept nogil:
    """Begins a truncation if the leader's log does not contain our last epoch, or contains only a part of it. This
    answer does not change the high watermark and the log start offset, but the next answer does."""
    cdef int64_t cut_to = local_divergence(each.partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    befell(each, BEFELL_CUT, each.at.end_offset, cut_to)
    cut_begin(each, CUT_END, cut_to)


cdef void take_refusal(Followed *each, int16_t error) noexcept nogil:
    if error == OFFSET_OUT_OF_RANGE:
        followed_set(each, FOLLOW_ASKS_END)
    elif error == FENCED_LEADER_EPOCH:
        # This broker will soon receive metadata with the partition's new role.
        followed_fail(each, BEFELL_FENCED, each.at.leader_epoch)
    elif error in (UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
                   INCONSISTENT_TOPIC_ID):
        followed_refused(each)
    else:
        befell(each, BEFELL_REFUSED, error, 0)
        followed_delay(each)


cdef void take_partition(Followed *each, const PartitionData *data) noexcept nogil:
    if data.error_code != 0:
        take_refusal(each, data.error_code)
    elif data.diverging_epoch.epoch >= 0:
        take_divergence(each, data)
    else:
        each.refused = 0
        take_records(each, data.records.data, <size_t> max(data.records.size, 0), data.high_watermark,
                     data.log_start_offset)
        if data.records.size > 0:
            # Moves the partition to the end, so that other partitions come first in the next full fetch.
            link_add(&each.fetcher.all, &each.in_all)


cdef int begin_fetch(Fetcher *f, Reader *reader, int16_t *error) noexcept nogil:
    cdef Taking *taking = &f.taking
    cdef int fault
    arena_init(&taking.arena, ARENA_BYTES)
    fault = view_read(fetch_response_program(f.fetch_version), reader, &taking.answer, &taking.arena)
    if fault != 0:
        arena_free(&taking.arena)
        return fault
    error[0] = taking.answer.error_code
    taking.topic = taking.partition = 0
    taking.is_under_way = True
    session_goes_on(f, taking.answer.error_code, taking.answer.session_id)
    return 0


cdef bint absorb_more(Fetcher *f, int64_t most) noexcept nogil:
    cdef Taking *taking = &f.taking
    cdef FetchableTopicResponse *topic
    cdef PartitionData *data
    cdef Followed *each
    if not taking.is_under_way:
        return True
    while taking.answer.error_code == 0 and taking.topic < taking.answer.responses.count:
        topic = &(<FetchableTopicResponse *> taking.answer.responses.items)[taking.topic]
        if taking.partition >= topic.partitions.count:
            taking.topic += 1
            taking.partition = 0
            continue
        if most <= 0:
            return False
        data = &(<PartitionData *> topic.partitions.items)[taking.partition]
        taking.partition += 1
        most -= PARTITION_COST + max(data.records.size, 0)
        if f.fetch_version == FETCH_BY_NAME:
            each = fetcher_find_named(f, <const char *> topic.topic.data, <int32_t> topic.topic.size,
                                      data.partition_index)
        else:
            each = fetcher_find(f, topic.topic_id, data.partition_index)
        if each != NULL and is_as_asked(each):
            take_partition(each, data)
    absorb_end(f)
    return True


cdef void absorb_end(Fetcher *f) noexcept nogil:
    if f.taking.is_under_way:
        f.taking.is_under_way = False
        arena_free(&f.taking.arena)
        f.under_way = ASK_NOTHING


# --- ListOffsets ---

cdef void take_end(Followed *each, int64_t leader_end) noexcept nogil:
    local_position(each.partition, &each.at)
    if leader_end < each.at.end_offset and not is_planted(b"end-past-the-leader-kept"):
        # A follower's log ends past the leader's only after an unclean election, or if the leader has lost its disk.
        befell(each, BEFELL_CUT_TO_END, each.at.end_offset, leader_end)
        cut_begin(each, CUT_END, leader_end)
    else:
        each.leader_end = leader_end
        followed_set(each, FOLLOW_ASKS_START)


cdef void take_start(Followed *each, int64_t leader_start) noexcept nogil:
    local_position(each.partition, &each.at)
    if leader_start > each.at.end_offset and not is_planted(b"log-not-begun-anew"):
        befell(each, BEFELL_RESTART, each.at.end_offset, leader_start)
        cut_begin(each, CUT_ALL, leader_start)
    else:
        # The leader's log has the offset now. If the leader still rejects the offset, the delay keeps the follower from
        # sending requests without a pause.
        followed_lags(each, max(each.leader_end - each.at.end_offset, 0))
        followed_delay(each)


cdef Followed *find_asking(Link *asks, const ListOffsetsTopicResponse *topic, int32_t index) noexcept nogil:
    """Finds the partition among the partitions that the request named. They are at the front of the list, and there are
    at most OFFSETS_AT_ONCE of them (ask.pyx)."""
    cdef Link *link = asks.next
    cdef Followed *each
    while link != asks:
        each = of_line(link)
        if (each.partition.index == index and each.partition.topic_size == topic.name.size
                and memcmp(each.partition.topic, topic.name.data, topic.name.size) == 0):
            return each
        link = link.next
    return NULL


cdef int absorb_offsets(Fetcher *f, int asked, Reader *reader, Arena *arena) noexcept nogil:
    cdef ListOffsetsResponse answer
    cdef ListOffsetsTopicResponse *topics
    cdef ListOffsetsPartitionResponse *partitions
    cdef Link *asks = &f.asks_end if asked == ASK_END else &f.asks_start
    cdef Followed *each
    cdef int32_t t, i
    cdef int fault = view_read(list_offsets_response_program(f.offsets_version), reader, &answer, arena)
    if fault != 0:
        return fault
    topics = <ListOffsetsTopicResponse *> answer.topics.items
    for t in range(answer.topics.count):
        partitions = <ListOffsetsPartitionResponse *> topics[t].partitions.items
        for i in range(topics[t].partitions.count):
            each = find_asking(asks, &topics[t], partitions[i].partition_index)
            if each == NULL:
                continue
            if partitions[i].error_code != 0:
                take_refusal(each, partitions[i].error_code)
                if each.state == FOLLOW_ASKS_END:
                    followed_delay(each)  # OFFSET_OUT_OF_RANGE is not a valid error of ListOffsets
            elif partitions[i].offset < 0:
                followed_delay(each)
            elif asked == ASK_END:
                take_end(each, partitions[i].offset)
            else:
                take_start(each, partitions[i].offset)
    # The answer lacks the partitions whose `is_asked` is still set.
    while asks.next != asks and of_line(asks.next).is_asked:
        followed_delay(of_line(asks.next))
    return 0


cdef int absorb_begin(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil:
    cdef Arena arena
    cdef Reader reader
    cdef int asked = f.under_way
    cdef int fault = 0
    error[0] = 0
    reader_init(&reader, body, size)
    if asked == ASK_FETCH:
        return begin_fetch(f, &reader, error)
    f.under_way = ASK_NOTHING
    if asked != ASK_NOTHING:
        arena_init(&arena, ARENA_BYTES)
        fault = absorb_offsets(f, asked, &reader, &arena)
        arena_free(&arena)
    return fault


cdef int fetcher_absorb(Fetcher *f, const uint8_t *body, size_t size, int16_t *error) noexcept nogil:
    cdef int fault = absorb_begin(f, body, size, error)
    if fault == 0:
        absorb_more(f, NO_LIMIT)
    return fault
