"""Handles the session and the answer of a Fetch (KIP-227). This module decides which partitions a request fetches and
which partitions the answer contains.

An incremental answer leaves out partitions that have nothing new: no records, no error, and the same high watermark and
log start offset as before.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from kafkacore._fast.base.error_codes cimport (
    FENCED_LEADER_EPOCH, INVALID_FETCH_SESSION_EPOCH, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.plane.answer cimport answer_add_file, answer_add_memory
from kafkacore._fast.base.cursor cimport Writer, put32, writer_detach, writer_free, writer_init
from kafkacore._fast.hot.fetch_session cimport (
    FINAL_EPOCH, INITIAL_EPOCH, session_new, sessions_add, sessions_remove, sessions_take,
)
from kafkacore._fast.hot.session_partitions cimport (
    FetchSession, SessionAsker, SessionPartition, session_drop, session_find, session_mark_all, session_move_last,
    session_partition_release, session_put, session_release, session_return, session_take, session_watch_only,
)
from kafkacore._fast.hot.answers cimport MAX_ANSWER_BYTES, NONE, answer_begin, copy_slice
from kafkacore._fast.hot.endpoints cimport endpoints_add, endpoints_begin
from kafkacore._fast.hot.state cimport endpoints_of
from kafkacore._fast.hot.named_once cimport Distinct, distinct_add, distinct_begin
from kafkacore._fast.log.partition cimport READ_COMMITTED, partition_hold, partition_release
from kafkacore._fast.log.replication_quota cimport THROTTLED_LEADER, quota_record
from kafkacore._fast.log.traffic cimport traffic_failed, traffic_sent
from kafkacore._fast.log.readers cimport CHANGE_NEWS, CHANGE_READY, change_mark, changes_begin, changes_count
from kafkacore._fast.plane.plane cimport Request, request_table
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.partition_table cimport PartitionTable, table_find_id, table_find_name, table_knows_id
from kafkacore._fast.schema.view cimport Gap, Program, arena_alloc, view_write
from kafkacore._fast.schema.wire cimport (
    FETCH_RESPONSE_FLEXIBLE, AbortedTransaction, FetchPartition, FetchTopic, FetchableTopicResponse, ForgottenTopic,
    PartitionData, fetch_response_program,
)

cdef enum:
    STORAGE_ERROR_VERSION = 6  # from this version on, clients understand KAFKA_STORAGE_ERROR (KIP-112)
    LEADERS_VERSION = 16       # from this version on, the answer contains leaders and their endpoints (KIP-951)
    NO_HIGH_WATERMARK = -1


# --- the partitions of the request ---

cdef int call_partitions(FetchCall *call) noexcept nogil:
    cdef int16_t error
    if call.body.session_epoch == INITIAL_EPOCH or call.body.session_epoch == FINAL_EPOCH:
        if call.body.session_id != 0:
            sessions_remove(call.state.sessions, call.body.session_id)
        call.starts_session = call.body.session_epoch == INITIAL_EPOCH
        return parts_of_request(call)
    error = sessions_take(call.state.sessions, call.body.session_id, call.body.session_epoch,
                          call.request.api_version >= TOPIC_ID_VERSION, call.now_ms, &call.session)
    if error != NONE:
        return error
    return parts_of_session(call)


cdef int parts_of_request(FetchCall *call) noexcept nogil:
    cdef FetchTopic *topics = <FetchTopic *> call.body.topics.items
    cdef FetchPartition *wanted
    cdef Distinct seen
    cdef int32_t t, i
    cdef int32_t count = 0
    for t in range(call.body.topics.count):
        count += topics[t].partitions.count
    call.parts = <Part *> arena_alloc(&call.arena, count * sizeof(Part))
    if (call.parts == NULL and count) or not distinct_begin(&seen, &call.arena, count):
        return -1
    for t in range(call.body.topics.count):
        if not copy_slice(&call.arena, &topics[t].topic):
            return -1
        wanted = <FetchPartition *> topics[t].partitions.items
        for i in range(topics[t].partitions.count):
            add_part(call, &topics[t], &wanted[i], &seen)
    return 0


cdef void add_part(FetchCall *call, const FetchTopic *topic, const FetchPartition *wanted,
                   Distinct *seen) noexcept nogil:
    """Adds a partition of the request. If the request names a partition twice, the part keeps its first position and
    gets the last values, as in Kafka's linked map."""
    cdef Part *part = &call.parts[call.count]
    cdef int32_t earlier
    part.topic = topic.topic
    memcpy(part.topic_id, topic.topic_id, 16)
    part.index = wanted.partition
    find_partition(call, part, False)
    earlier = distinct_add(seen, part.partition, call.count) if part.partition != NULL else call.count
    if earlier != call.count:
        partition_release(part.partition)
        call.known_count -= 1
        part.partition = NULL
        part = &call.parts[earlier]
    else:
        call.count += 1
    part.offset = wanted.fetch_offset
    part.max_bytes = wanted.partition_max_bytes
    part.current_leader_epoch = wanted.current_leader_epoch
    part.last_fetched_epoch = wanted.last_fetched_epoch
    part.log_start_offset = wanted.log_start_offset


cdef bint find_partition(FetchCall *call, Part *part, bint topic_was_known) noexcept nogil:
    """Finds the partition of a part. Returns whether the part's topic is known or was known before. If a topic of a
    session has been deleted, the answer reports an unknown partition instead of an unknown topic id. Apache Kafka does
    the same, because its session remembers the name of each topic id."""
    cdef PartitionTable *table = request_table(call.request)
    cdef bint known = topic_was_known
    part.view.high_watermark = -1
    part.view.last_stable_offset = -1
    part.view.log_start_offset = -1
    part.view.diverging_end_offset = -1
    part.error = call.forced_error
    part.preferred = -1
    if call.request.api_version >= TOPIC_ID_VERSION:
        part.partition = table_find_id(table, part.topic_id, part.index)
        known = known or part.partition != NULL or table_knows_id(table, part.topic_id)
        if part.partition == NULL and part.error == NONE:
            part.error = UNKNOWN_TOPIC_OR_PARTITION if known else UNKNOWN_TOPIC_ID
    else:
        part.partition = table_find_name(table, part.topic.data, part.topic.size, part.index)
        if part.partition == NULL and part.error == NONE:
            part.error = UNKNOWN_TOPIC_OR_PARTITION
    if part.partition != NULL:
        partition_hold(part.partition)
        call.known_count += 1
    return known


cdef int parts_of_session(FetchCall *call) noexcept nogil:
    """Applies the request's changes to its session. Then makes parts of the session's changed partitions, so that the
    call can read them without the session's lock."""
    cdef FetchSession *session = call.session
    cdef int32_t size
    cdef bint ok
    mutex_lock(&session.lock)
    ok = change_session(call)
    forget(call)
    if call.looks_at_all or is_another_asker(call):
        session_mark_all(session)
    ok = ok and take_parts(call, changes_begin(&session.changes, call.follower_id, call.follower_epoch, call.asked_ms))
    size = session.order.count
    mutex_unlock(&session.lock)
    if not ok:
        # The session needs more memory than an arena may have. A retry would need at least as much.
        sessions_remove(call.state.sessions, call.body.session_id)
        return -1
    if size == 0:  # the session is empty, and Kafka ends such a session
        sessions_remove(call.state.sessions, call.body.session_id)
        session_release(session)
        call.session = NULL
    return 0


cdef bint change_session(FetchCall *call) noexcept nogil:
    cdef FetchTopic *topics = <FetchTopic *> call.body.topics.items
    cdef FetchPartition *wanted
    cdef SessionPartition *kept
    cdef int32_t t, i
    for t in range(call.body.topics.count):
        wanted = <FetchPartition *> topics[t].partitions.items
        for i in range(topics[t].partitions.count):
            kept = session_put(call.session, topics[t].topic_id, topics[t].topic.data, topics[t].topic.size,
                               wanted[i].partition)
            if kept == NULL:
                return False
            kept.fetch_offset = wanted[i].fetch_offset
            kept.max_bytes = wanted[i].partition_max_bytes
            kept.current_leader_epoch = wanted[i].current_leader_epoch
            kept.last_fetched_epoch = wanted[i].last_fetched_epoch
            kept.fetcher_log_start = wanted[i].log_start_offset
            change_mark(&kept.change)
    return True


cdef bint is_another_asker(FetchCall *call) noexcept nogil:
    """Returns whether the sender, the isolation level or the version of this request differs from the session's
    previous request."""
    cdef SessionAsker *known = &call.session.asker
    cdef bint same = (known.follower_id == call.follower_id and known.follower_epoch == call.follower_epoch
                      and known.isolation == call.body.isolation_level
                      and known.api_version == call.request.api_version)
    known[0] = SessionAsker(call.follower_id, call.follower_epoch, call.body.isolation_level, call.request.api_version)
    return not same


cdef void forget(FetchCall *call) noexcept nogil:
    cdef ForgottenTopic *topics = <ForgottenTopic *> call.body.forgotten_topics_data.items
    cdef int32_t *indexes
    cdef SessionPartition *kept
    cdef int32_t t, i
    for t in range(call.body.forgotten_topics_data.count):
        indexes = <int32_t *> topics[t].partitions.items
        for i in range(topics[t].partitions.count):
            kept = session_find(call.session, topics[t].topic_id, topics[t].topic.data, topics[t].topic.size,
                                indexes[i])
            if kept != NULL:
                session_drop(call.session, kept)


cdef bint make_room(FetchCall *call, int32_t more) noexcept nogil:
    """Makes room for `more` parts. Call this with the session's lock held, while no part is being read and no part
    waits. The arena cannot free the old parts, so the room never grows beyond the session without need."""
    cdef Part *parts
    cdef int32_t capacity
    if call.count + more <= call.capacity:
        return True
    capacity = max(call.count + more, min(2 * call.capacity, call.session.order.count))
    parts = <Part *> arena_alloc(&call.arena, capacity * sizeof(Part))
    if parts == NULL:
        return False
    if call.count:
        memcpy(parts, call.parts, call.count * sizeof(Part))
    call.parts = parts
    call.capacity = capacity
    return True


cdef bint take_parts(FetchCall *call, int32_t marked) noexcept nogil:
    """Unmarks the session's marked partitions, and adds a part for each. Partitions that change from now on belong to
    the next read. Call this with the session's lock held."""
    cdef SessionPartition *kept
    if call.count == 0 and not make_room(call, marked):
        return False
    for _ in range(marked):
        kept = session_take(call.session)
        if kept == NULL:
            break
        if kept.holder == call:  # an earlier read of this Fetch took the partition
            session_partition_release(kept)
        elif not make_room(call, 1) or not add_kept(call, kept):
            session_return(kept, True, CHANGE_NEWS)
            return False
    call.settled_count = call.session.order.count - call.count
    return True


cdef bint add_kept(FetchCall *call, SessionPartition *kept) noexcept nogil:
    cdef Part *part = &call.parts[call.count]
    cdef uint8_t *name = <uint8_t *> arena_alloc(&call.arena, kept.topic_size)
    if name == NULL and kept.topic_size:
        return False
    memset(part, 0, sizeof(Part))
    call.count += 1
    if kept.topic_size:
        memcpy(name, <uint8_t *> (kept + 1), kept.topic_size)
    part.kept = kept
    kept.holder = call
    part.topic.data = name
    part.topic.size = kept.topic_size
    memcpy(part.topic_id, kept.topic_id, 16)
    part.index = kept.index
    part.offset = kept.fetch_offset
    part.max_bytes = kept.max_bytes
    part.current_leader_epoch = kept.current_leader_epoch
    part.last_fetched_epoch = kept.last_fetched_epoch
    part.log_start_offset = kept.fetcher_log_start
    kept.topic_was_known = find_partition(call, part, kept.topic_was_known)
    session_watch_only(kept, part.partition)
    return True


cdef bint call_look_again(FetchCall *call) noexcept nogil:
    cdef bint ok = True
    mutex_lock(&call.session.lock)
    call.is_overtaken = load32(&call.session.epoch) != next_epoch(call.body.session_epoch)
    if not call.is_overtaken:
        ok = take_parts(call, changes_count(&call.session.changes))
    mutex_unlock(&call.session.lock)
    return ok


cdef void call_give_back(FetchCall *call) noexcept nogil:
    cdef int32_t i
    for i in range(call.count - 1, -1, -1):
        give_back(call, &call.parts[i], True, CHANGE_READY)


cdef void give_back(const FetchCall *call, Part *part, bint first, int32_t state) noexcept nogil:
    if part.kept == NULL:
        return
    if part.kept.holder == call:
        part.kept.holder = NULL
    session_return(part.kept, first, state)
    part.kept = NULL


# --- the partitions of the answer ---

cdef bint call_answer(FetchCall *call) noexcept nogil:
    cdef bint ok = True
    if call.session != NULL:
        mutex_lock(&call.session.lock)
        # While this request waited, another request of the session may have arrived on another connection.
        if load32(&call.session.epoch) == next_epoch(call.body.session_epoch):
            call.answer.session_id = call.session.id
            ok = name_parts(call, True)
            settle(call)
        else:
            call.answer.error_code = INVALID_FETCH_SESSION_EPOCH
            call_give_back(call)
        mutex_unlock(&call.session.lock)
    else:
        if call.starts_session:
            start_session(call)
        ok = name_parts(call, False)
    count_throttled(call)
    return ok and write_answer(call)


cdef void count_throttled(FetchCall *call) noexcept nogil:
    """Counts all bytes that go to followers against the replication quota. Bytes for followers in the ISR count too,
    although the quota does not delay these followers."""
    cdef int64_t size_bytes = 0
    cdef int32_t i
    if call.follower_id < 0 or call.state.leader_quota == NULL:
        return
    for i in range(call.count):
        if call.parts[i].partition != NULL and load32(&call.parts[i].partition.throttled) & THROTTLED_LEADER:
            size_bytes += call.parts[i].read.size
    if size_bytes:
        quota_record(call.state.leader_quota, size_bytes, call.asked_ms)


cdef bint call_answer_error(FetchCall *call, int16_t error) noexcept nogil:
    call.answer.error_code = error
    return write_answer(call)


cdef inline int32_t next_epoch(int32_t epoch) noexcept nogil:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


cdef void start_session(FetchCall *call) noexcept nogil:
    """Creates a session. If there is no room or no memory, the answer has session id 0, and the client continues with
    full fetches."""
    cdef FetchSession *session = session_new(call.state.sessions, call.request.api_version >= TOPIC_ID_VERSION)
    cdef SessionPartition *kept
    cdef Part *part
    cdef int32_t i
    cdef bint ok = session != NULL
    if session == NULL:
        return
    session.privileged = call.follower_id >= 0
    for i in range(call.count):
        part = &call.parts[i]
        kept = session_put(session, part.topic_id, part.topic.data, part.topic.size, part.index)
        if kept == NULL:
            ok = False
            break
        kept.fetch_offset = part.offset
        kept.max_bytes = part.max_bytes
        kept.current_leader_epoch = part.current_leader_epoch
        kept.last_fetched_epoch = part.last_fetched_epoch
        kept.fetcher_log_start = part.log_start_offset
        kept.topic_was_known = part.error != UNKNOWN_TOPIC_ID
        has_news(kept, part)
    if ok and session.order.count > 0:
        call.answer.session_id = sessions_add(call.state.sessions, session, call.now_ms)
    session_release(session)


cdef bint has_news(SessionPartition *kept, const Part *part) noexcept nogil:
    """Returns whether the answer must contain this partition. Notes the values that the answer sends."""
    cdef bint news = part.read.size > 0 or part.view.diverging_end_offset >= 0 or part.error != NONE
    news = news or part.preferred >= 0
    if kept.high_watermark != part.view.high_watermark:
        kept.high_watermark = part.view.high_watermark
        news = True
    if kept.log_start_offset != part.view.log_start_offset:
        kept.log_start_offset = part.view.log_start_offset
        news = True
    if part.error != NONE:
        kept.high_watermark = NO_HIGH_WATERMARK  # so the next answer without an error contains the partition
    return news


cdef bint is_settled(const FetchCall *call, const Part *part) noexcept nogil:
    """Returns whether the next Fetch can skip the partition if it does not change until then. Three conditions must
    hold: the partition has no error, the client has everything that it may read, and the client is not a follower
    outside the ISR. Such a follower can join the ISR at any of its Fetches, because its broker may have been unfenced,
    or a pending change of the ISR may have ended."""
    cdef int64_t bound = part.view.high_watermark
    if call.follower_id >= 0:
        bound = part.view.end_offset
    elif call.body.isolation_level == READ_COMMITTED:
        bound = part.view.last_stable_offset
    return (not call.looks_at_all and part.partition != NULL and part.error == NONE and part.preferred < 0
            and part.view.diverging_end_offset < 0 and part.offset >= bound
            and (call.follower_id < 0 or part.view.is_in_sync))


cdef void settle(FetchCall *call) noexcept nogil:
    """Orders the partitions for the next Fetch, so that no partition starves. Partitions that this answer leaves out
    come first. Partitions whose records this answer sends come last."""
    cdef Part *part
    cdef int32_t i
    for i in range(call.count - 1, -1, -1):
        part = &call.parts[i]
        if is_settled(call, part):
            part.kept.holder = NULL
            session_partition_release(part.kept)
            part.kept = NULL
        elif part.read.size == 0:
            give_back(call, part, True, CHANGE_NEWS)
    for i in range(call.count):
        give_back(call, &call.parts[i], False, CHANGE_NEWS)


cdef bint name_parts(FetchCall *call, bint only_news) noexcept nogil:
    """Lays out the topics and partitions of the answer. Consecutive partitions of the same topic share an entry."""
    cdef FetchableTopicResponse *topics
    cdef FetchableTopicResponse *topic = NULL
    cdef PartitionData *answers
    cdef SessionPartition *kept
    cdef Part *part
    cdef int32_t used = 0
    cdef int32_t i
    topics = <FetchableTopicResponse *> arena_alloc(&call.arena, call.count * sizeof(FetchableTopicResponse))
    answers = <PartitionData *> arena_alloc(&call.arena, call.count * sizeof(PartitionData))
    if call.count and (topics == NULL or answers == NULL):
        return False
    call.named = <Part **> arena_alloc(&call.arena, call.count * sizeof(Part *))
    if call.count and call.named == NULL:
        return False
    call.answers = answers
    call.answer.responses.items = topics
    for i in range(call.count):
        part = &call.parts[i]
        if only_news:
            kept = part.kept
            if kept.is_dropped or not has_news(kept, part):
                continue
            if part.read.size > 0:
                session_move_last(call.session, kept)
        if topic == NULL or not same_topic(topic, part):
            topic = &topics[call.answer.responses.count]
            call.answer.responses.count += 1
            topic.topic = part.topic
            memcpy(topic.topic_id, part.topic_id, 16)
            topic.partitions.items = &answers[used]
        fill(&answers[used], part, call.request.api_version)
        if part.read.size > 0:
            traffic_sent(&part.partition.traffic, part.read.size, call.follower_id >= 0, part.view.is_added)
        elif part.partition != NULL and part.error != NONE:
            traffic_failed(&part.partition.traffic, part.error)
        if call.body.isolation_level == READ_COMMITTED and not list_aborted(call, &answers[used], part):
            return False
        call.named[used] = part
        topic.partitions.count += 1
        used += 1
    return True


cdef bint same_topic(const FetchableTopicResponse *topic, const Part *part) noexcept nogil:
    return topic.topic.size == part.topic.size and memcmp(topic.topic_id, part.topic_id, 16) == 0 and (
        part.topic.size <= 0 or memcmp(topic.topic.data, part.topic.data, part.topic.size) == 0)


cdef void fill(PartitionData *out, const Part *part, int16_t version) noexcept nogil:
    out.partition_index = part.index
    out.error_code = part.error
    if part.error == KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
        out.error_code = NOT_LEADER_OR_FOLLOWER  # an older client would take KAFKA_STORAGE_ERROR for a fatal error
    out.high_watermark = part.view.high_watermark
    out.last_stable_offset = part.view.last_stable_offset
    out.log_start_offset = part.view.log_start_offset
    out.diverging_epoch.epoch = -1
    out.diverging_epoch.end_offset = -1
    out.current_leader.leader_id = -1
    out.current_leader.leader_epoch = -1
    out.snapshot_id.end_offset = -1
    out.snapshot_id.epoch = -1
    out.preferred_read_replica = part.preferred
    out.aborted_transactions.count = -1
    out.records.data = NULL               # leaves a gap, which `splice` fills with a range of the segment
    out.records.size = <int32_t> part.read.size
    if part.view.diverging_end_offset >= 0:
        out.diverging_epoch.epoch = part.view.diverging_epoch
        out.diverging_epoch.end_offset = part.view.diverging_end_offset
    if version >= LEADERS_VERSION and is_led_elsewhere(part):
        out.current_leader.leader_id = part.view.leader_id
        out.current_leader.leader_epoch = part.view.leader_epoch


cdef bint is_led_elsewhere(const Part *part) noexcept nogil:
    """Returns whether another node leads the partition, or whether this node leads it in a later epoch than the
    client's."""
    return part.error == NOT_LEADER_OR_FOLLOWER or part.error == FENCED_LEADER_EPOCH


cdef bint list_aborted(FetchCall *call, PartitionData *out, const Part *part) noexcept nogil:
    cdef AbortedTransaction *listed
    cdef int64_t i
    listed = <AbortedTransaction *> arena_alloc(&call.arena, part.aborted_count * sizeof(AbortedTransaction))
    if listed == NULL and part.aborted_count:
        return False
    for i in range(part.aborted_count):
        listed[i].producer_id = part.aborted[i].producer_id
        listed[i].first_offset = part.aborted[i].first_offset
    out.aborted_transactions.items = listed
    out.aborted_transactions.count = <int32_t> part.aborted_count
    return True


# --- writing ---

cdef bint write_answer(FetchCall *call) noexcept nogil:
    cdef const Program *program = fetch_response_program(call.request.api_version)
    cdef Gap *gaps = <Gap *> arena_alloc(&call.arena, (call.count + 1) * sizeof(Gap))
    cdef Writer out
    cdef int gap_count = 0
    if gaps == NULL:
        return False
    writer_init(&out, MAX_ANSWER_BYTES)
    answer_begin(&out, call.request, call.request.api_version >= FETCH_RESPONSE_FLEXIBLE)
    if hint_needed(call):
        hint_endpoints(call)
    view_write(program, &call.answer, &out, gaps, call.count + 1, &gap_count)
    if out.bad:
        writer_free(&out)
        return False
    return splice(call, &out, gaps, gap_count)


cdef bint splice(FetchCall *call, Writer *out, const Gap *gaps, int gap_count) noexcept nogil:
    """Makes the extents of the answer: the written bytes and, for each gap between them, a range of a segment. Takes
    over the memory of the writer."""
    cdef Request *request = call.request
    cdef size_t size = out.size
    cdef size_t at = 0
    cdef uint8_t *data = writer_detach(out)
    cdef Part *part
    cdef size_t distance
    cdef int i
    request.answer.memory = data
    put32(data, <uint32_t> (size - 4 + sum_of_gaps(gaps, gap_count)))
    for i in range(gap_count):
        if gaps[i].slice.size == 0:
            continue
        distance = <const char *> gaps[i].slice - <const char *> &call.answers[0].records
        part = call.named[distance // sizeof(PartitionData)]
        if answer_add_memory(&request.answer, data + at, gaps[i].position - at) != 0:
            return False
        at = gaps[i].position
        if answer_add_file(&request.answer, part.read.segment, part.read.cuts, part.read.position,
                           part.read.size) != 0:
            return False
        part.read.segment = NULL  # the answer owns the reference now
        part.read.size = 0
    return answer_add_memory(&request.answer, data + at, size - at) == 0


cdef int64_t sum_of_gaps(const Gap *gaps, int gap_count) noexcept nogil:
    cdef int64_t total = 0
    cdef int i
    for i in range(gap_count):
        total += gaps[i].slice.size
    return total


cdef bint hint_needed(const FetchCall *call) noexcept nogil:
    cdef int32_t i
    if call.request.api_version < LEADERS_VERSION:
        return False
    for i in range(call.count):
        if is_led_elsewhere(&call.parts[i]):
            return True
    return False


cdef void hint_endpoints(FetchCall *call) noexcept nogil:
    """Adds the endpoints of the leaders in the answer (KIP-951)."""
    cdef int32_t i
    endpoints_begin(&call.answer.node_endpoints, &call.arena, call.count)
    for i in range(call.count):
        if is_led_elsewhere(&call.parts[i]):
            endpoints_add(&call.answer.node_endpoints, endpoints_of(call.state), call.request.listener,
                          call.parts[i].view.leader_id)
