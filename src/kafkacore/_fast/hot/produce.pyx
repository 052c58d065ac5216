"""Serves Produce: appends the batch of each partition, waits for the requested acknowledgements, and answers.

A call (one unanswered Produce) appends to its partitions in order. While the log of a partition is being opened or
rolled, nothing can be appended to it. The call and its connection then stall, so that the batches of a producer never
overtake each other.
"""

from libc.stdlib cimport calloc, free
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, strlen

from kafkacore._fast.base.error_codes cimport (
    INVALID_REQUIRED_ACKS, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkacore._fast.base.atomics cimport add32, load32
from kafkacore._fast.base.cursor cimport Reader, Writer, reader_init, writer_init
from kafkacore._fast.hot.answers cimport MAX_ANSWER_BYTES, NONE, answer_begin, answer_whole, copy_slice
from kafkacore._fast.hot.endpoints cimport endpoints_add, endpoints_begin
from kafkacore._fast.hot.state cimport HotState, NodeState, endpoints_of, purgatory_enter, purgatory_leave
from kafkacore._fast.plane.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.log.log cimport LOG_BLOCKED
from kafkacore._fast.log.append cimport AppendInfo
from kafkacore._fast.hot.named_once cimport Distinct, distinct_add, distinct_begin
from kafkacore._fast.wait.memory cimport CACHE_LINE_BYTES, budget_park, budget_unpark
from kafkacore._fast.wait.park cimport (
    WAKE_READY, WAKE_TIMEOUT, Parked, Waiter, WakeList, park_deadline_passed, park_init, park_release, park_wake,
    wake_all,
)
from kafkacore._fast.log.partition cimport (
    Acknowledgement, FetchView, Partition, partition_acknowledged, partition_append, partition_hold,
    partition_open_ahead, partition_release, partition_unwait, partition_view, partition_wait_for_ack,
)
from kafkacore._fast.plane.plane cimport (
    SERVED, SERVED_BLOCKED, SERVED_CLOSE, SERVED_PARKED, SERVED_PUNT, TURN_NS, HotApi, Request, hot_api,
    request_answered, request_inbox, request_release_frame, request_table, request_unblocked, request_wheel,
)
from kafkacore._fast.log.partition_table cimport PartitionTable, table_find_id, table_find_name, table_knows_id
from kafkacore._fast.wait.timer cimport wheel_add, wheel_cancel
from kafkacore._fast.record.validate cimport ORIGIN_CLIENT
from kafkacore._fast.world.environment cimport Clock
from kafkacore._fast.schema.view cimport Arena, Program, arena_alloc, arena_free, arena_init, view_read, view_write
from kafkacore._fast.schema.wire cimport (
    PRODUCE_RESPONSE_FLEXIBLE, BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse,
    ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse, produce_request_program,
    produce_response_program,
)

cdef enum:
    ACKS_ALL = -1
    # The parsed request and its answer take about 250 bytes for each partition. On the wire, a partition has a batch of
    # at least 61 bytes. A request that needs a larger arena names thousands of partitions without batches, so it counts
    # as malformed.
    LEAST_ARENA_BYTES = 64 << 10
    MOST_ARENA_BYTES = 64 << 20
    ARENA_TIMES_FRAME = 16
    LEADERS_VERSION = 10       # from this version on, the answer contains leaders and their endpoints (KIP-951)
    TOPIC_ID_VERSION = 13

# One partition of the call.
ctypedef struct Part:
    Partition *partition          # holds a reference; NULL for an unknown partition
    PartitionProduceData *data
    PartitionProduceResponse *answer
    Acknowledgement ack           # `at` is -1 if there is nothing to wait for
    Waiter waiter

ctypedef struct ProduceCall:
    Parked parked                 # must be the first field, so that it has the address of the call
    Request *request              # NULL after the connection has closed
    NodeState *state
    Arena arena
    ProduceRequest body
    ProduceResponse answer
    Part *parts
    int32_t count
    int32_t next                  # index of the first part that has not been appended yet
    bint failed                   # a partition has an error; with acks=0 the connection then closes
    bint internal                 # a partition belongs to one of Kafka's internal topics
    int64_t held_bytes            # bytes counted in the plane's budget since the call was first blocked or parked
    int32_t watched               # number of partitions that the call waits for; 0 if it is not in the purgatory
    bint opened_ahead             # the logs of all its partitions are ready or being opened
    Waiter blocked

cdef int32_t live_calls = 0       # atomic; tests check that it returns to zero


cdef int serve_produce(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef ProduceCall *call = call_new(<NodeState *> state, request)
    cdef int outcome
    if call == NULL:
        return SERVED_CLOSE
    outcome = call_read(call)
    if outcome == SERVED and (call.body.transactional_id.size >= 0 or call.internal):
        outcome = SERVED_PUNT  # Python decides about transactions and about writes to internal topics
    if outcome != SERVED:
        park_release(&call.parked)
        return outcome
    request.no_answer = call.body.acks == 0
    if verdict.action == GATE_ERROR:
        refuse_all(call, verdict.error)
    elif call.body.acks < ACKS_ALL or call.body.acks > 1:
        refuse_all(call, INVALID_REQUIRED_ACKS)
    request.state = call
    request.drop_state = drop_call
    return finish(call, go_on(call))


cdef ProduceCall *call_new(NodeState *state, Request *request) noexcept nogil:
    cdef ProduceCall *call = <ProduceCall *> calloc(1, sizeof(ProduceCall))
    if call == NULL:
        return NULL
    park_init(&call.parked, request_inbox(request))
    call.parked.resume = resume_call
    call.parked.destroy = destroy_call
    call.parked.timer.fire = park_deadline_passed
    call.blocked.parked = &call.parked
    call.request = request
    call.state = state
    arena_init(&call.arena, min(LEAST_ARENA_BYTES + ARENA_TIMES_FRAME * <size_t> request.frame.size, MOST_ARENA_BYTES))
    add32(&live_calls, 1)
    return call


cdef void destroy_call(Parked *parked) noexcept nogil:
    cdef ProduceCall *call = <ProduceCall *> parked
    cdef int32_t i
    for i in range(call.count):
        if call.parts[i].partition != NULL:
            partition_release(call.parts[i].partition)
    arena_free(&call.arena)
    free(call)
    add32(&live_calls, -1)


cdef void drop_call(Request *request) noexcept nogil:
    """Releases the call, because its connection is closed. Appended batches stay in the logs, and no answer is sent."""
    cdef ProduceCall *call = <ProduceCall *> request.state
    cdef int32_t i
    request.state = NULL
    wheel_cancel(request_wheel(request), &call.parked.timer)
    for i in range(call.count):
        if call.parts[i].partition != NULL:
            partition_unwait(call.parts[i].partition, &call.parts[i].waiter)
    leave_purgatory(call)
    if call.next < call.count and call.parts[call.next].partition != NULL:
        partition_unwait(call.parts[call.next].partition, &call.blocked)
    release_memory(call)
    call.request = NULL
    park_release(&call.parked)


# --- reading ---

cdef int call_read(ProduceCall *call) noexcept nogil:
    """Parses the body and lays out the parts and the answer. Returns SERVED, or SERVED_CLOSE if the body is
    malformed."""
    cdef const Program *program = produce_request_program(call.request.api_version)
    cdef Reader reader
    reader_init(&reader, call.request.frame.data + call.request.header_size,
                call.request.frame.size - call.request.header_size)
    if program == NULL or view_read(program, &reader, &call.body, &call.arena) != 0:
        return SERVED_CLOSE
    return SERVED if lay_out(call) else SERVED_CLOSE


cdef bint lay_out(ProduceCall *call) noexcept nogil:
    cdef TopicProduceData *topics = <TopicProduceData *> call.body.topic_data.items
    cdef TopicProduceResponse *answers
    cdef TopicProduceResponse *answered
    cdef Distinct seen
    cdef int32_t topic_count = call.body.topic_data.count
    cdef int32_t count = 0
    cdef int32_t t
    for t in range(topic_count):
        count += topics[t].partition_data.count
    answers = <TopicProduceResponse *> arena_alloc(&call.arena, topic_count * sizeof(TopicProduceResponse))
    call.parts = <Part *> arena_alloc(&call.arena, count * sizeof(Part))
    if (answers == NULL and topic_count) or (call.parts == NULL and count):
        return False
    if not distinct_begin(&seen, &call.arena, count):
        return False
    call.answer.responses.items = answers
    for t in range(topic_count):
        answered = &answers[call.answer.responses.count]
        answered.name = topics[t].name
        memcpy(answered.topic_id, topics[t].topic_id, 16)
        # The frame may be released before the answer is written.
        if not copy_slice(&call.arena, &answered.name) or not lay_out_topic(call, &topics[t], answered, &seen):
            return False
        if answered.partition_responses.count or topics[t].partition_data.count == 0:
            call.answer.responses.count += 1
    return True


cdef bint lay_out_topic(ProduceCall *call, TopicProduceData *topic, TopicProduceResponse *answer,
                        Distinct *seen) noexcept nogil:
    """Lays out the parts and the answer of one topic. If the request names a partition twice, only the last batch is
    appended, and the answer contains the partition once, at its first position. Apache Kafka answers in the same way,
    because it collects the batches of a request in a map."""
    cdef PartitionProduceData *data = <PartitionProduceData *> topic.partition_data.items
    cdef int32_t count = topic.partition_data.count
    cdef PartitionProduceResponse *answers
    cdef Part *part
    cdef int32_t i, earlier
    answers = <PartitionProduceResponse *> arena_alloc(&call.arena, count * sizeof(PartitionProduceResponse))
    if answers == NULL and count:
        return False
    answer.partition_responses.items = answers
    for i in range(count):
        part = &call.parts[call.count]
        part.data = &data[i]
        part.answer = &answers[answer.partition_responses.count]
        part.ack.at = -1
        part.waiter.parked = &call.parked
        start_answer(part.answer, data[i].index)
        find_partition(call, topic, part)
        earlier = distinct_add(seen, part.partition, call.count) if part.partition != NULL else call.count
        if earlier != call.count:
            call.parts[earlier].data = &data[i]
            partition_release(part.partition)
            part.partition = NULL
            continue
        call.count += 1
        answer.partition_responses.count += 1
    return True


cdef void start_answer(PartitionProduceResponse *answer, int32_t index) noexcept nogil:
    answer.index = index
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    answer.error_message.size = -1
    answer.current_leader.leader_id = -1
    answer.current_leader.leader_epoch = -1


cdef void find_partition(ProduceCall *call, TopicProduceData *topic, Part *part) noexcept nogil:
    cdef PartitionTable *table = request_table(call.request)
    cdef bint known
    if call.request.api_version >= TOPIC_ID_VERSION:
        part.partition = table_find_id(table, topic.topic_id, part.data.index)
        if part.partition == NULL:
            known = table_knows_id(table, topic.topic_id)
            refuse(call, part, UNKNOWN_TOPIC_OR_PARTITION if known else UNKNOWN_TOPIC_ID)
    else:
        part.partition = table_find_name(table, topic.name.data, topic.name.size, part.data.index)
        if part.partition == NULL:
            refuse(call, part, UNKNOWN_TOPIC_OR_PARTITION)
    if part.partition != NULL:
        partition_hold(part.partition)
        if is_internal(part.partition):
            call.internal = True


cdef bint is_internal(const Partition *partition) noexcept nogil:
    """Returns whether the partition's topic is in storage.names.INTERNAL_TOPICS."""
    cdef const char *topic = partition.topic
    if partition.topic_size == 18:
        return memcmp(topic, <const char *> b"__consumer_offsets", 18) == 0
    if partition.topic_size == 19:
        return memcmp(topic, <const char *> b"__transaction_state", 19) == 0 or \
            memcmp(topic, <const char *> b"__share_group_state", 19) == 0
    return False


# --- appending and waiting ---

cdef void refuse(ProduceCall *call, Part *part, int error) noexcept nogil:
    part.answer.error_code = error
    call.failed = True


cdef void refuse_all(ProduceCall *call, int error) noexcept nogil:
    cdef int32_t i
    for i in range(call.count):
        refuse(call, &call.parts[i], error)


cdef int go_on(ProduceCall *call) noexcept nogil:
    """Appends the remaining parts. Returns SERVED, SERVED_PARKED (the call waits for acknowledgements) or
    SERVED_BLOCKED (a log is not ready, or the call has used its share of the turn and continues in the next turn)."""
    cdef bint is_long = call.count - call.next > 1
    cdef int64_t end_ns = now_ns(call) + TURN_NS if is_long else 0
    cdef int64_t end_bytes = call.request.inflated_bytes + call.request.plane.turn_bytes
    while call.next < call.count:
        if call.parts[call.next].answer.error_code == NONE:
            if append(call, &call.parts[call.next]) == LOG_BLOCKED:
                open_ahead(call)
                return SERVED_BLOCKED
        call.next += 1
        if call.next < call.count and (call.request.inflated_bytes >= end_bytes or now_ns(call) >= end_ns):
            park_wake(&call.parked, WAKE_READY)
            return SERVED_BLOCKED
    if not wait_for_acks(call):
        return SERVED
    wheel_add(request_wheel(call.request), &call.parked.timer,
              request_wheel(call.request).now_ms + call.body.timeout_ms)
    return SERVED_PARKED


cdef inline int64_t now_ns(const ProduceCall *call) noexcept nogil:
    cdef const Clock *clock = &call.request.plane.env.clock
    return clock.monotonic_ns(clock.self)


cdef void open_ahead(ProduceCall *call) noexcept nogil:
    """While the log of a part is being opened or rolled, prepares the logs of all later parts too, because one sync to
    disk can serve many logs."""
    cdef int32_t i
    if call.opened_ahead:
        return
    call.opened_ahead = True
    for i in range(call.next + 1, call.count):
        if call.parts[i].answer.error_code == NONE:
            partition_open_ahead(call.parts[i].partition)


cdef int append(ProduceCall *call, Part *part) noexcept nogil:
    cdef AppendInfo info
    cdef WakeList wakes
    cdef int error
    wakes.count = 0
    error = partition_append(part.partition, <uint8_t *> part.data.records.data, max(part.data.records.size, 0),
                             call.body.acks, ORIGIN_CLIENT, &call.blocked, &info, &part.ack, &wakes)
    wake_all(&wakes)
    call.request.inflated_bytes += info.validated.body_bytes
    if error == LOG_BLOCKED:
        return error
    if error != NONE:
        refuse(call, part, error)
        explain(call, part, &info)
        return error
    # Chooses the alignment of the next request's frame. The kernel copies a batch a fifth faster if its address in
    # memory and its position in the file are equal modulo the size of a cache line. The next batch of this connection
    # will probably follow this batch in the log, and will be at the same position in its request.
    call.request.skew = <int8_t> ((info.end_position - (<uint8_t *> part.data.records.data - call.request.frame.data))
                                  & (CACHE_LINE_BYTES - 1))
    part.answer.base_offset = info.first_offset
    part.answer.log_append_time_ms = info.log_append_time_ms
    part.answer.log_start_offset = info.log_start_offset
    return NONE


cdef void explain(ProduceCall *call, Part *part, const AppendInfo *info) noexcept nogil:
    """Adds details to the answer: the invalid records and the reason (KIP-467), or the leader if another node leads
    (KIP-951)."""
    cdef BatchIndexAndErrorMessage *errors
    cdef int32_t i
    if part.answer.error_code == NOT_LEADER_OR_FOLLOWER:
        name_leader(call, part)
        return
    if info.validated.message != NULL:
        part.answer.error_message.data = <const uint8_t *> info.validated.message
        part.answer.error_message.size = <int32_t> strlen(info.validated.message)
    if info.validated.error_count <= 0:
        return
    errors = <BatchIndexAndErrorMessage *> arena_alloc(
        &call.arena, info.validated.error_count * sizeof(BatchIndexAndErrorMessage))
    if errors == NULL:
        return  # the answer still has the error code, but no details
    part.answer.record_errors.items = errors
    part.answer.record_errors.count = info.validated.error_count
    for i in range(info.validated.error_count):
        errors[i].batch_index = info.validated.errors[i].batch_index
        errors[i].batch_index_error_message.data = <const uint8_t *> info.validated.errors[i].message
        errors[i].batch_index_error_message.size = <int32_t> strlen(info.validated.errors[i].message)


cdef void name_leader(const ProduceCall *call, Part *part) noexcept nogil:
    cdef FetchView view
    if call.request.api_version < LEADERS_VERSION:
        return  # this version has no field for the leader
    partition_view(part.partition, &view)
    part.answer.current_leader.leader_id = view.leader_id
    part.answer.current_leader.leader_epoch = view.leader_epoch


cdef bint wait_for_acks(ProduceCall *call) noexcept nogil:
    """Queues a waiter on every partition whose batch has not been acknowledged yet. Returns True if it has queued a
    waiter."""
    cdef Part *part
    cdef bint waiting = False
    cdef int32_t i
    for i in range(call.count):
        part = &call.parts[i]
        if part.ack.at < 0 or part.answer.error_code != NONE:
            continue
        if partition_wait_for_ack(part.partition, &part.ack, &part.waiter):
            waiting = True
        else:
            settle(call, part, NOT_LEADER_OR_FOLLOWER)  # a closed log takes no waiters
    return waiting


cdef void settle(ProduceCall *call, Part *part, int still_waiting) noexcept nogil:
    """Ends the wait of a part. Either its batch is acknowledged, or this node no longer leads the partition, or the
    disk has failed."""
    cdef int error = partition_acknowledged(part.partition, &part.ack)
    if error == LOG_BLOCKED:
        error = still_waiting
    if error != NONE:
        refuse(call, part, error)
        if error == NOT_LEADER_OR_FOLLOWER:
            name_leader(call, part)
    part.ack.at = -1


cdef void time_out(ProduceCall *call) noexcept nogil:
    cdef Part *part
    cdef int32_t i
    for i in range(call.count):
        part = &call.parts[i]
        if part.ack.at >= 0 and part.answer.error_code == NONE:
            partition_unwait(part.partition, &part.waiter)
            settle(call, part, REQUEST_TIMED_OUT)


cdef void resume_call(Parked *parked, int why) noexcept nogil:
    cdef ProduceCall *call = <ProduceCall *> parked
    cdef Request *request = call.request
    cdef int outcome
    if request == NULL:
        return
    if call.next < call.count:
        outcome = go_on(call)
        if outcome == SERVED_BLOCKED:
            return
        request_unblocked(request)
    elif why & WAKE_TIMEOUT:
        time_out(call)
        outcome = SERVED
    else:
        unwait_all(call)
        outcome = SERVED_PARKED if wait_for_acks(call) else SERVED
    if finish(call, outcome) == SERVED:
        request_answered(request)


cdef void unwait_all(ProduceCall *call) noexcept nogil:
    cdef int32_t i
    for i in range(call.count):
        if call.parts[i].ack.at >= 0:
            partition_unwait(call.parts[i].partition, &call.parts[i].waiter)


# --- answering ---

cdef int finish(ProduceCall *call, int outcome) noexcept nogil:
    """If the outcome is `SERVED`, ends the call: makes the answer and frees the call. Returns the outcome."""
    cdef Request *request = call.request
    if outcome != SERVED:
        hold_memory(call)
        if outcome == SERVED_PARKED:  # the records have been appended, so nothing points into the frame
            enter_purgatory(call)
            request_release_frame(request)
        return outcome
    wheel_cancel(request_wheel(request), &call.parked.timer)
    leave_purgatory(call)
    release_memory(call)
    request.state = NULL
    request.drop_state = NULL
    if request.no_answer:
        # With acks=0 there is no answer, so only the closed connection reports the error to the producer.
        request.close_after = call.failed
    elif not answer(call):
        request.close_after = True
    call.request = NULL
    park_release(&call.parked)
    return SERVED


cdef void enter_purgatory(ProduceCall *call) noexcept nogil:
    if not call.watched:
        call.watched = call.count
        purgatory_enter(&call.state.produce_purgatory, call.watched)


cdef void leave_purgatory(ProduceCall *call) noexcept nogil:
    if call.watched:
        purgatory_leave(&call.state.produce_purgatory, call.watched)
        call.watched = 0


cdef void hold_memory(ProduceCall *call) noexcept nogil:
    if not call.held_bytes:
        call.held_bytes = sizeof(ProduceCall) + <int64_t> call.arena.taken
        budget_park(&call.request.plane.budget, call.held_bytes, True)


cdef void release_memory(ProduceCall *call) noexcept nogil:
    if call.held_bytes:
        budget_unpark(&call.request.plane.budget, call.held_bytes)
        call.held_bytes = 0


cdef bint answer(ProduceCall *call) noexcept nogil:
    cdef Writer out
    cdef int gaps = 0
    cdef const Program *program = produce_response_program(call.request.api_version)
    if call.failed and call.request.api_version >= LEADERS_VERSION:
        hint_endpoints(call)
    writer_init(&out, MAX_ANSWER_BYTES)
    answer_begin(&out, call.request, call.request.api_version >= PRODUCE_RESPONSE_FLEXIBLE)
    view_write(program, &call.answer, &out, NULL, 0, &gaps)
    return answer_whole(&out, call.request)


cdef void hint_endpoints(ProduceCall *call) noexcept nogil:
    """Adds the endpoints of the leaders in the answer (KIP-951)."""
    cdef int32_t i
    endpoints_begin(&call.answer.node_endpoints, &call.arena, call.count)
    for i in range(call.count):
        if call.parts[i].answer.current_leader.leader_id >= 0:
            endpoints_add(&call.answer.node_endpoints, endpoints_of(call.state), call.request.listener,
                          call.parts[i].answer.current_leader.leader_id)


# --- Python interface ---

def api(HotState hot not None) -> HotApi:
    """Returns the `HotApi` of Produce."""
    return hot_api(serve_produce, &hot.state, hot)


def live() -> int:
    """Returns the number of unanswered Produce calls in this process."""
    return load32(&live_calls)
