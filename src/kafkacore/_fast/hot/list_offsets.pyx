"""Answers ListOffsets without the GIL: the start and end offsets of partitions that this node leads.

A look-up by timestamp waits for a disk, and the error for an unknown topic depends on the metadata. If a request needs
either of them, the whole request goes to the handler unchanged. For all other requests, the handler gives the same
answers as this module.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkacore._fast.base.error_codes cimport (
    FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE,
    UNKNOWN_LEADER_EPOCH,
)
from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.cursor cimport Reader, Writer, reader_init, writer_init
from kafkacore._fast.plane.gate cimport GATE_ERROR, Verdict
from kafkacore._fast.hot.answers cimport MAX_ANSWER_BYTES, NONE, answer_begin, answer_whole
from kafkacore._fast.hot.state cimport HotState
from kafkacore._fast.hot.named_once cimport Distinct, distinct_add, distinct_begin
from kafkacore._fast.log.log cimport LOG_FAILED
from kafkacore._fast.log.partition cimport ROLE_GONE, ROLE_LEADER, Partition, partition_is_behind
from kafkacore._fast.plane.plane cimport SERVED, SERVED_CLOSE, SERVED_PUNT, HotApi, Request, hot_api, request_table
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.partition_table cimport PartitionTable, table_find_name
from kafkacore._fast.schema.view cimport Arena, arena_alloc, arena_free, arena_init, view_read, view_write
from kafkacore._fast.schema.wire cimport (
    LIST_OFFSETS_RESPONSE_FLEXIBLE, ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopic, ListOffsetsTopicResponse, list_offsets_request_program,
    list_offsets_response_program,
)

cdef enum:
    # The arena has enough memory for the request and the answer of 100,000 partitions. The handler serves larger
    # requests.
    CALL_ARENA_BYTES = 16 << 20
    LATEST = -1
    EARLIEST = -2
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6
    EPOCH_SINCE = 4
    UNAVAILABLE_SINCE = 5
    LOCAL_SINCE = 8
    TIERED_SINCE = 9
    PENDING_UPLOAD_SINCE = 11
    CONSUMER = -1
    DEBUGGER = -2
    READ_COMMITTED = 1

# The fields of a request that apply to each of its partitions.
ctypedef struct Asker:
    int16_t version
    int32_t replica_id
    bint committed
    int forced_error      # the error that the gate sets for every partition; NONE if it sets no error


cdef int serve_list_offsets(void *state, Request *request, const Verdict *verdict) noexcept nogil:
    cdef Arena arena
    cdef ListOffsetsRequest body
    cdef ListOffsetsResponse answer
    cdef Asker asker
    cdef int outcome
    cdef Reader reader
    reader_init(&reader, request.frame.data + request.header_size, request.frame.size - request.header_size)
    arena_init(&arena, CALL_ARENA_BYTES)
    outcome = SERVED_PUNT
    if view_read(list_offsets_request_program(request.api_version), &reader, &body, &arena) == 0:
        asker.version = request.api_version
        asker.replica_id = body.replica_id
        asker.committed = body.isolation_level == READ_COMMITTED
        asker.forced_error = verdict.error if verdict.action == GATE_ERROR else NONE
        answer.throttle_time_ms = 0
        if look_up(request_table(request), &asker, &body, &answer, &arena):
            outcome = write_answer(request, &answer)
    arena_free(&arena)
    return outcome


cdef int write_answer(Request *request, const ListOffsetsResponse *answer) noexcept nogil:
    cdef Writer out
    cdef int gaps = 0
    writer_init(&out, MAX_ANSWER_BYTES)
    answer_begin(&out, request, request.api_version >= LIST_OFFSETS_RESPONSE_FLEXIBLE)
    view_write(list_offsets_response_program(request.api_version), answer, &out, NULL, 0, &gaps)
    return SERVED if answer_whole(&out, request) else SERVED_CLOSE


cdef bint look_up(const PartitionTable *table, const Asker *asker, const ListOffsetsRequest *body,
                  ListOffsetsResponse *answer, Arena *arena) noexcept nogil:
    """Looks up all partitions of a request. Returns False if the handler must answer."""
    cdef ListOffsetsTopic *topics = <ListOffsetsTopic *> body.topics.items
    cdef ListOffsetsTopicResponse *answers
    cdef Distinct seen
    cdef int32_t t
    cdef int32_t count = 0
    for t in range(body.topics.count):
        count += topics[t].partitions.count
    answers = <ListOffsetsTopicResponse *> arena_alloc(arena, body.topics.count * sizeof(ListOffsetsTopicResponse))
    if table == NULL or not distinct_begin(&seen, arena, count) or (answers == NULL and body.topics.count):
        return False
    answer.topics.items = answers
    answer.topics.count = body.topics.count
    for t in range(body.topics.count):
        if not look_up_topic(table, asker, &topics[t], &answers[t], &seen, arena):
            return False
    return True


cdef bint look_up_topic(const PartitionTable *table, const Asker *asker, const ListOffsetsTopic *topic,
                        ListOffsetsTopicResponse *answer, Distinct *seen, Arena *arena) noexcept nogil:
    cdef ListOffsetsPartition *asked = <ListOffsetsPartition *> topic.partitions.items
    cdef ListOffsetsPartitionResponse *found
    cdef Partition *partition
    cdef int32_t named = seen.count
    cdef int32_t i
    found = <ListOffsetsPartitionResponse *> arena_alloc(
        arena, topic.partitions.count * sizeof(ListOffsetsPartitionResponse)
    )
    if found == NULL and topic.partitions.count:
        return False
    answer.name = topic.name
    answer.partitions.items = found
    answer.partitions.count = topic.partitions.count
    for i in range(topic.partitions.count):
        partition = table_find_name(table, topic.name.data, topic.name.size, asked[i].partition_index)
        if partition == NULL or not is_known(asked[i].timestamp, asker.version):
            return False
        distinct_add(seen, partition, i)
        named += 1
        if seen.count != named:  # if a partition is named twice, the handler answers as Apache Kafka does
            return False
        found[i].partition_index = asked[i].partition_index
        if not find(partition, asker, &asked[i], &found[i]):
            return False
    return True


cdef bint is_known(int64_t timestamp, int16_t version) noexcept nogil:
    """Returns True if this version has this special timestamp and the answer needs no disk."""
    if timestamp == LATEST or timestamp == EARLIEST:
        return True
    if timestamp == EARLIEST_LOCAL:
        return version >= LOCAL_SINCE
    if timestamp == LATEST_TIERED:
        return version >= TIERED_SINCE
    return timestamp == EARLIEST_PENDING_UPLOAD and version >= PENDING_UPLOAD_SINCE


cdef bint find(Partition *p, const Asker *asker, const ListOffsetsPartition *asked,
               ListOffsetsPartitionResponse *found) noexcept nogil:
    cdef bint is_here
    found.timestamp = -1
    found.offset = -1
    found.leader_epoch = -1
    found.error_code = <int16_t> asker.forced_error
    mutex_lock(&p.log.lock)
    is_here = p.role != ROLE_GONE
    if found.error_code == NONE:
        found.error_code = <int16_t> refusal(p, asker, asked)
    if found.error_code == NONE:
        fill_offset(p, asker, asked.timestamp, found)
    mutex_unlock(&p.log.lock)
    if asker.version < EPOCH_SINCE:
        found.leader_epoch = -1
    return is_here


# --- the caller must hold the log's lock ---

cdef int refusal(const Partition *p, const Asker *asker, const ListOffsetsPartition *asked) noexcept nogil:
    cdef int32_t current_epoch = asked.current_leader_epoch
    if p.log.state == LOG_FAILED or load32(&p.log.dir.offline):
        return KAFKA_STORAGE_ERROR
    if current_epoch != -1 and current_epoch != p.leader_epoch:
        return FENCED_LEADER_EPOCH if current_epoch < p.leader_epoch else UNKNOWN_LEADER_EPOCH
    if asker.replica_id != DEBUGGER and p.role != ROLE_LEADER:
        return NOT_LEADER_OR_FOLLOWER
    if asked.timestamp == LATEST and asker.replica_id == CONSUMER and partition_is_behind(p):
        return OFFSET_NOT_AVAILABLE if asker.version >= UNAVAILABLE_SINCE else LEADER_NOT_AVAILABLE
    return NONE


cdef void fill_offset(const Partition *p, const Asker *asker, int64_t timestamp,
                      ListOffsetsPartitionResponse *found) noexcept nogil:
    if timestamp == LATEST:
        found.leader_epoch = p.leader_epoch
        if asker.replica_id != CONSUMER:
            found.offset = p.log.end_offset
        else:
            found.offset = p.last_stable_offset if asker.committed else p.high_watermark
    elif timestamp == EARLIEST or timestamp == EARLIEST_LOCAL:
        found.offset = p.log.log_start_offset
        if p.log.epoch_count > 0 and p.log.epochs[0].start_offset <= found.offset:
            found.leader_epoch = p.log.epochs[0].epoch


def api(HotState hot not None) -> HotApi:
    """Returns the `HotApi` of ListOffsets."""
    return hot_api(serve_list_offsets, &hot.state, hot)
