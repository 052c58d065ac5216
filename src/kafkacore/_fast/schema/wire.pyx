"""Bindings of the hot messages to their C structs. Contract in wire.pxd."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Reader, read_i16, read_i32, read_uvarint, reader_init, take
from kafkacore._fast.schema.view cimport Binding, Program

from kafkacore._fast.schema import tables

cdef enum:
    MAX_API_KEY = 127
    NEVER = 0x7FFF
    CONTROLLED_SHUTDOWN = 7
    API_VERSIONS = 18


cdef inline int32_t at(const void *struct, const void *field) noexcept:
    return <int32_t> (<const char *> field - <const char *> struct)


cdef tuple layout_request_header():
    cdef RequestHeader s
    return sizeof(s), {
        "request_api_key": at(&s, &s.request_api_key), "request_api_version": at(&s, &s.request_api_version),
        "correlation_id": at(&s, &s.correlation_id), "client_id": at(&s, &s.client_id),
    }


cdef tuple layout_partition_produce_data():
    cdef PartitionProduceData s
    return sizeof(s), {
        "index": at(&s, &s.index), "records": at(&s, &s.records),
    }


cdef tuple layout_topic_produce_data():
    cdef TopicProduceData s
    return sizeof(s), {
        "name": at(&s, &s.name), "topic_id": at(&s, &s.topic_id[0]), "partition_data": at(&s, &s.partition_data),
    }


cdef tuple layout_produce_request():
    cdef ProduceRequest s
    return sizeof(s), {
        "transactional_id": at(&s, &s.transactional_id), "acks": at(&s, &s.acks), "timeout_ms": at(&s, &s.timeout_ms),
        "topic_data": at(&s, &s.topic_data),
    }


cdef tuple layout_batch_index_and_error_message():
    cdef BatchIndexAndErrorMessage s
    return sizeof(s), {
        "batch_index": at(&s, &s.batch_index), "batch_index_error_message": at(&s, &s.batch_index_error_message),
    }


cdef tuple layout_leader_id_and_epoch():
    cdef LeaderIdAndEpoch s
    return sizeof(s), {
        "leader_id": at(&s, &s.leader_id), "leader_epoch": at(&s, &s.leader_epoch),
    }


cdef tuple layout_partition_produce_response():
    cdef PartitionProduceResponse s
    return sizeof(s), {
        "index": at(&s, &s.index), "error_code": at(&s, &s.error_code), "base_offset": at(&s, &s.base_offset),
        "log_append_time_ms": at(&s, &s.log_append_time_ms), "log_start_offset": at(&s, &s.log_start_offset),
        "record_errors": at(&s, &s.record_errors), "error_message": at(&s, &s.error_message),
        "current_leader": at(&s, &s.current_leader),
    }


cdef tuple layout_topic_produce_response():
    cdef TopicProduceResponse s
    return sizeof(s), {
        "name": at(&s, &s.name), "topic_id": at(&s, &s.topic_id[0]),
        "partition_responses": at(&s, &s.partition_responses),
    }


cdef tuple layout_node_endpoint():
    cdef NodeEndpoint s
    return sizeof(s), {
        "node_id": at(&s, &s.node_id), "host": at(&s, &s.host), "port": at(&s, &s.port), "rack": at(&s, &s.rack),
    }


cdef tuple layout_produce_response():
    cdef ProduceResponse s
    return sizeof(s), {
        "responses": at(&s, &s.responses), "throttle_time_ms": at(&s, &s.throttle_time_ms),
        "node_endpoints": at(&s, &s.node_endpoints),
    }


cdef tuple layout_replica_state():
    cdef ReplicaState s
    return sizeof(s), {
        "replica_id": at(&s, &s.replica_id), "replica_epoch": at(&s, &s.replica_epoch),
    }


cdef tuple layout_fetch_partition():
    cdef FetchPartition s
    return sizeof(s), {
        "partition": at(&s, &s.partition), "current_leader_epoch": at(&s, &s.current_leader_epoch),
        "fetch_offset": at(&s, &s.fetch_offset), "last_fetched_epoch": at(&s, &s.last_fetched_epoch),
        "log_start_offset": at(&s, &s.log_start_offset), "partition_max_bytes": at(&s, &s.partition_max_bytes),
        "replica_directory_id": at(&s, &s.replica_directory_id[0]), "high_watermark": at(&s, &s.high_watermark),
    }


cdef tuple layout_fetch_topic():
    cdef FetchTopic s
    return sizeof(s), {
        "topic": at(&s, &s.topic), "topic_id": at(&s, &s.topic_id[0]), "partitions": at(&s, &s.partitions),
    }


cdef tuple layout_forgotten_topic():
    cdef ForgottenTopic s
    return sizeof(s), {
        "topic": at(&s, &s.topic), "topic_id": at(&s, &s.topic_id[0]), "partitions": at(&s, &s.partitions),
    }


cdef tuple layout_fetch_request():
    cdef FetchRequest s
    return sizeof(s), {
        "cluster_id": at(&s, &s.cluster_id), "replica_id": at(&s, &s.replica_id),
        "replica_state": at(&s, &s.replica_state), "max_wait_ms": at(&s, &s.max_wait_ms),
        "min_bytes": at(&s, &s.min_bytes), "max_bytes": at(&s, &s.max_bytes),
        "isolation_level": at(&s, &s.isolation_level), "session_id": at(&s, &s.session_id),
        "session_epoch": at(&s, &s.session_epoch), "topics": at(&s, &s.topics),
        "forgotten_topics_data": at(&s, &s.forgotten_topics_data), "rack_id": at(&s, &s.rack_id),
    }


cdef tuple layout_epoch_end_offset():
    cdef EpochEndOffset s
    return sizeof(s), {
        "epoch": at(&s, &s.epoch), "end_offset": at(&s, &s.end_offset),
    }


cdef tuple layout_snapshot_id():
    cdef SnapshotId s
    return sizeof(s), {
        "end_offset": at(&s, &s.end_offset), "epoch": at(&s, &s.epoch),
    }


cdef tuple layout_aborted_transaction():
    cdef AbortedTransaction s
    return sizeof(s), {
        "producer_id": at(&s, &s.producer_id), "first_offset": at(&s, &s.first_offset),
    }


cdef tuple layout_partition_data():
    cdef PartitionData s
    return sizeof(s), {
        "partition_index": at(&s, &s.partition_index), "error_code": at(&s, &s.error_code),
        "high_watermark": at(&s, &s.high_watermark), "last_stable_offset": at(&s, &s.last_stable_offset),
        "log_start_offset": at(&s, &s.log_start_offset), "diverging_epoch": at(&s, &s.diverging_epoch),
        "current_leader": at(&s, &s.current_leader), "snapshot_id": at(&s, &s.snapshot_id),
        "aborted_transactions": at(&s, &s.aborted_transactions),
        "preferred_read_replica": at(&s, &s.preferred_read_replica), "records": at(&s, &s.records),
    }


cdef tuple layout_fetchable_topic_response():
    cdef FetchableTopicResponse s
    return sizeof(s), {
        "topic": at(&s, &s.topic), "topic_id": at(&s, &s.topic_id[0]), "partitions": at(&s, &s.partitions),
    }


cdef tuple layout_fetch_response():
    cdef FetchResponse s
    return sizeof(s), {
        "throttle_time_ms": at(&s, &s.throttle_time_ms), "error_code": at(&s, &s.error_code),
        "session_id": at(&s, &s.session_id), "responses": at(&s, &s.responses),
        "node_endpoints": at(&s, &s.node_endpoints),
    }


cdef tuple layout_list_offsets_partition():
    cdef ListOffsetsPartition s
    return sizeof(s), {
        "partition_index": at(&s, &s.partition_index), "current_leader_epoch": at(&s, &s.current_leader_epoch),
        "timestamp": at(&s, &s.timestamp),
    }


cdef tuple layout_list_offsets_topic():
    cdef ListOffsetsTopic s
    return sizeof(s), {
        "name": at(&s, &s.name), "partitions": at(&s, &s.partitions),
    }


cdef tuple layout_list_offsets_request():
    cdef ListOffsetsRequest s
    return sizeof(s), {
        "replica_id": at(&s, &s.replica_id), "isolation_level": at(&s, &s.isolation_level),
        "topics": at(&s, &s.topics), "timeout_ms": at(&s, &s.timeout_ms),
    }


cdef tuple layout_list_offsets_partition_response():
    cdef ListOffsetsPartitionResponse s
    return sizeof(s), {
        "partition_index": at(&s, &s.partition_index), "error_code": at(&s, &s.error_code),
        "timestamp": at(&s, &s.timestamp), "offset": at(&s, &s.offset), "leader_epoch": at(&s, &s.leader_epoch),
    }


cdef tuple layout_list_offsets_topic_response():
    cdef ListOffsetsTopicResponse s
    return sizeof(s), {
        "name": at(&s, &s.name), "partitions": at(&s, &s.partitions),
    }


cdef tuple layout_list_offsets_response():
    cdef ListOffsetsResponse s
    return sizeof(s), {
        "throttle_time_ms": at(&s, &s.throttle_time_ms), "topics": at(&s, &s.topics),
    }


cdef tuple layout_heartbeat_request():
    cdef HeartbeatRequest s
    return sizeof(s), {
        "group_id": at(&s, &s.group_id), "generation_id": at(&s, &s.generation_id),
        "member_id": at(&s, &s.member_id), "group_instance_id": at(&s, &s.group_instance_id),
    }


cdef tuple layout_heartbeat_response():
    cdef HeartbeatResponse s
    return sizeof(s), {
        "throttle_time_ms": at(&s, &s.throttle_time_ms), "error_code": at(&s, &s.error_code),
    }


cdef tuple layout_sync_group_request_assignment():
    cdef SyncGroupRequestAssignment s
    return sizeof(s), {
        "member_id": at(&s, &s.member_id), "assignment": at(&s, &s.assignment),
    }


cdef tuple layout_sync_group_request():
    cdef SyncGroupRequest s
    return sizeof(s), {
        "group_id": at(&s, &s.group_id), "generation_id": at(&s, &s.generation_id),
        "member_id": at(&s, &s.member_id), "group_instance_id": at(&s, &s.group_instance_id),
        "protocol_type": at(&s, &s.protocol_type), "protocol_name": at(&s, &s.protocol_name),
        "assignments": at(&s, &s.assignments),
    }


cdef tuple layout_sync_group_response():
    cdef SyncGroupResponse s
    return sizeof(s), {
        "throttle_time_ms": at(&s, &s.throttle_time_ms), "error_code": at(&s, &s.error_code),
        "protocol_type": at(&s, &s.protocol_type), "protocol_name": at(&s, &s.protocol_name),
        "assignment": at(&s, &s.assignment),
    }


cdef Binding REQUEST_HEADER = Binding("RequestHeader", 1, 2, {
    "RequestHeader": layout_request_header(),
})
cdef Binding PRODUCE_REQUEST = Binding("ProduceRequest", 3, 13, {
    "PartitionProduceData": layout_partition_produce_data(),
    "TopicProduceData": layout_topic_produce_data(),
    "ProduceRequest": layout_produce_request(),
})
cdef Binding PRODUCE_RESPONSE = Binding("ProduceResponse", 3, 13, {
    "BatchIndexAndErrorMessage": layout_batch_index_and_error_message(),
    "LeaderIdAndEpoch": layout_leader_id_and_epoch(),
    "PartitionProduceResponse": layout_partition_produce_response(),
    "TopicProduceResponse": layout_topic_produce_response(),
    "NodeEndpoint": layout_node_endpoint(),
    "ProduceResponse": layout_produce_response(),
})
cdef Binding FETCH_REQUEST = Binding("FetchRequest", 4, 18, {
    "ReplicaState": layout_replica_state(),
    "FetchPartition": layout_fetch_partition(),
    "FetchTopic": layout_fetch_topic(),
    "ForgottenTopic": layout_forgotten_topic(),
    "FetchRequest": layout_fetch_request(),
})
cdef Binding FETCH_RESPONSE = Binding("FetchResponse", 4, 18, {
    "EpochEndOffset": layout_epoch_end_offset(),
    "LeaderIdAndEpoch": layout_leader_id_and_epoch(),
    "SnapshotId": layout_snapshot_id(),
    "AbortedTransaction": layout_aborted_transaction(),
    "PartitionData": layout_partition_data(),
    "FetchableTopicResponse": layout_fetchable_topic_response(),
    "NodeEndpoint": layout_node_endpoint(),
    "FetchResponse": layout_fetch_response(),
})
cdef Binding LIST_OFFSETS_REQUEST = Binding("ListOffsetsRequest", 1, 11, {
    "ListOffsetsPartition": layout_list_offsets_partition(),
    "ListOffsetsTopic": layout_list_offsets_topic(),
    "ListOffsetsRequest": layout_list_offsets_request(),
})
cdef Binding LIST_OFFSETS_RESPONSE = Binding("ListOffsetsResponse", 1, 11, {
    "ListOffsetsPartitionResponse": layout_list_offsets_partition_response(),
    "ListOffsetsTopicResponse": layout_list_offsets_topic_response(),
    "ListOffsetsResponse": layout_list_offsets_response(),
})
cdef Binding HEARTBEAT_REQUEST = Binding("HeartbeatRequest", 0, 4, {
    "HeartbeatRequest": layout_heartbeat_request(),
})
cdef Binding HEARTBEAT_RESPONSE = Binding("HeartbeatResponse", 0, 4, {
    "HeartbeatResponse": layout_heartbeat_response(),
})
cdef Binding SYNC_GROUP_REQUEST = Binding("SyncGroupRequest", 0, 5, {
    "SyncGroupRequestAssignment": layout_sync_group_request_assignment(),
    "SyncGroupRequest": layout_sync_group_request(),
})
cdef Binding SYNC_GROUP_RESPONSE = Binding("SyncGroupResponse", 0, 5, {
    "SyncGroupResponse": layout_sync_group_response(),
})

BINDINGS = {binding.name: binding for binding in (
    REQUEST_HEADER,
    PRODUCE_REQUEST,
    PRODUCE_RESPONSE,
    FETCH_REQUEST,
    FETCH_RESPONSE,
    LIST_OFFSETS_REQUEST,
    LIST_OFFSETS_RESPONSE,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    SYNC_GROUP_REQUEST,
    SYNC_GROUP_RESPONSE,
)}


cdef const Program *request_header_program(int version) noexcept nogil:
    return REQUEST_HEADER.program(version)


cdef const Program *produce_request_program(int version) noexcept nogil:
    return PRODUCE_REQUEST.program(version)


cdef const Program *produce_response_program(int version) noexcept nogil:
    return PRODUCE_RESPONSE.program(version)


cdef const Program *fetch_request_program(int version) noexcept nogil:
    return FETCH_REQUEST.program(version)


cdef const Program *fetch_response_program(int version) noexcept nogil:
    return FETCH_RESPONSE.program(version)


cdef const Program *list_offsets_request_program(int version) noexcept nogil:
    return LIST_OFFSETS_REQUEST.program(version)


cdef const Program *list_offsets_response_program(int version) noexcept nogil:
    return LIST_OFFSETS_RESPONSE.program(version)


cdef const Program *heartbeat_request_program(int version) noexcept nogil:
    return HEARTBEAT_REQUEST.program(version)


cdef const Program *heartbeat_response_program(int version) noexcept nogil:
    return HEARTBEAT_RESPONSE.program(version)


cdef const Program *sync_group_request_program(int version) noexcept nogil:
    return SYNC_GROUP_REQUEST.program(version)


cdef const Program *sync_group_response_program(int version) noexcept nogil:
    return SYNC_GROUP_RESPONSE.program(version)


# --- headers ---

cdef int16_t FLEXIBLE_REQUEST[MAX_API_KEY + 1]     # the first flexible version; -1 where there is no such API
cdef int16_t FLEXIBLE_RESPONSE[MAX_API_KEY + 1]


cdef int learn_headers() except -1:
    cdef int key
    for key in range(MAX_API_KEY + 1):
        FLEXIBLE_REQUEST[key] = FLEXIBLE_RESPONSE[key] = -1
    # Of an API that the current release dropped, the former one's row stays.
    for release in (tables.FORMER, tables.CURRENT):
        for api in tables.apis(release):
            if api.key > MAX_API_KEY:
                raise ValueError(f"API {api.key} is above the {MAX_API_KEY} that headers are known for")
            FLEXIBLE_REQUEST[<int> api.key] = min(NEVER, <int> api.flexible)
            FLEXIBLE_RESPONSE[<int> api.key] = min(NEVER, <int> api.flexible_response)
    return 0


cdef int32_t read_request_header(const uint8_t *frame, size_t size, RequestHeader *out) noexcept nogil:
    cdef Reader r
    reader_init(&r, frame, size)
    out.request_api_key = read_i16(&r)
    out.request_api_version = read_i16(&r)
    out.correlation_id = read_i32(&r)
    out.client_id.data = NULL
    out.client_id.size = -1
    if r.bad or out.request_api_key < 0 or out.request_api_key > MAX_API_KEY:
        return -1
    if FLEXIBLE_REQUEST[out.request_api_key] < 0:
        return -1
    if out.request_api_key == CONTROLLED_SHUTDOWN and out.request_api_version == 0:
        return <int32_t> (r.pos - frame)
    # Not compact even in flexible versions, so that any broker can read the header of any ApiVersions (KIP-511).
    out.client_id.size = read_i16(&r)
    if out.client_id.size < -1:
        return -1
    if out.client_id.size >= 0:
        out.client_id.data = take(&r, out.client_id.size)
    if out.request_api_version >= FLEXIBLE_REQUEST[out.request_api_key]:
        skip_tags(&r)
    return -1 if r.bad else <int32_t> (r.pos - frame)


cdef void skip_tags(Reader *r) noexcept nogil:
    cdef uint32_t count = read_uvarint(r)
    cdef int64_t last = -1
    cdef uint32_t tag
    while count and not r.bad:
        tag = read_uvarint(r)
        if <int64_t> tag <= last:
            r.bad = True
        last = tag
        take(r, read_uvarint(r))
        count -= 1


cdef bint response_has_tags(int16_t api_key, int16_t version) noexcept nogil:
    if api_key < 0 or api_key > MAX_API_KEY or api_key == API_VERSIONS or FLEXIBLE_RESPONSE[api_key] < 0:
        return False
    return version >= FLEXIBLE_RESPONSE[api_key]


def request_header(const uint8_t[::1] frame):
    """`(api key, version, correlation id, client id, body offset)` as the native reader sees it; None when it
    refuses."""
    cdef RequestHeader header
    cdef int32_t body = read_request_header(&frame[0] if frame.shape[0] else NULL, frame.shape[0], &header)
    if body < 0:
        return None
    client = None if header.client_id.size < 0 else (<const char *> header.client_id.data)[:header.client_id.size]
    return header.request_api_key, header.request_api_version, header.correlation_id, client, body


def has_response_tags(int api_key, int version):
    return response_has_tags(api_key, version)


learn_headers()
