"""The response that tells one error for a whole request, for every API.

Most responses have an error code at their top. The others name the error once for each thing that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message

Build = Callable[[Any, Any, RequestContext, ErrorCode, str | None], None]


def error_response(request: Message, call: RequestContext, error: ErrorCode, message: str | None) -> Message:
    """`message` is shown where the version of the response has a place for it."""
    if request.API_KEY in _OF_A_GROUP:
        from kafkacore.coordinator.group.answers import whole_request

        return whole_request(request, error, call.api_version)
    response: Any = apis.response_class(request.API_KEY)()
    fill = _ITEMIZED.get(request.API_KEY)
    if fill is not None:
        fill(response, request, call, error, message)
    least, most = _TOP_CODE.get(request.API_KEY, (0, 0x7FFF))
    if "error_code" in response.FIELDS and least <= call.api_version <= most:
        response.error_code = error
        if "error_message" in response.FIELDS and request.API_KEY not in _LATE_MESSAGE:
            response.error_message = message or error.message
    made: Message = response
    return made


_OF_A_GROUP: Final = frozenset({
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
})  # fmt: skip
# The versions with an error code at the top, where not all have one.
_TOP_CODE: Final = {
    ApiKey.METADATA: (13, 0x7FFF),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.OFFSET_FETCH: (2, 7),
    ApiKey.ELECT_LEADERS: (1, 0x7FFF),
}
_LATE_MESSAGE: Final = frozenset({ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_QUORUM})


def _produce(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    topic_class = response.TopicProduceResponse
    partition_class = response.PartitionProduceResponse
    shown = message if call.api_version >= 8 else None
    response.responses = [
        topic_class(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                partition_class(index=each.index, error_code=error, base_offset=-1, error_message=shown)
                for each in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]


def _list_offsets(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.topics = [
        response.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                response.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=error)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _metadata(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.topics = [
        # A topic asked for by its id has no name, and before version 12 no response can say so.
        response.MetadataResponseTopic(
            error_code=error, name=topic.name if call.api_version >= 12 else topic.name or "", topic_id=topic.topic_id
        )
        for topic in request.topics or ()
    ]


def _create_topics(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.topics = [
        response.CreatableTopicResult(
            name=topic.name, error_code=error, error_message=message or error.message if call.api_version >= 1 else None
        )
        for topic in request.topics
    ]


def _delete_topics(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    named = [(topic.name, topic.topic_id) for topic in request.topics] + [(name, None) for name in request.topic_names]
    shown = message if call.api_version >= 5 else None
    for name, topic_id in named:
        result = response.DeletableTopicResult(name=name, error_code=error, error_message=shown)
        if topic_id is not None:
            result.topic_id = topic_id
        response.responses.append(result)


def _create_partitions(
    response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None
) -> None:
    response.results = [
        response.CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message or error.message)
        for topic in request.topics
    ]


def _delete_records(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.topics = [
        response.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                response.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=error
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _epochs(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.topics = [
        response.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                response.EpochEndOffset(partition=each.partition, error_code=error) for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _describe_topic_partitions(
    response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None
) -> None:
    response.topics = [
        response.DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name) for topic in request.topics
    ]


def _describe_configs(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.results = [
        response.DescribeConfigsResult(
            error_code=error,
            error_message=message or error.message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in request.resources
    ]


def _alter_configs(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.responses = [
        response.AlterConfigsResourceResponse(
            error_code=error,
            error_message=message or error.message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in request.resources
    ]


def _elect_leaders(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.replica_election_results = [
        response.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                response.PartitionResult(partition_id=each, error_code=error, error_message=message or error.message)
                for each in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]


def _alter_client_quotas(
    response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None
) -> None:
    response.entries = [
        response.EntryData(
            error_code=error,
            error_message=message or error.message,
            entity=[
                response.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
            ],
        )
        for entry in request.entries
    ]


def _describe_client_quotas(
    response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None
) -> None:
    response.entries = None


def _alter_scram(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    response.results = [
        response.AlterUserScramCredentialsResult(user=name, error_code=error, error_message=message or error.message)
        for name in names
    ]


def _describe_producers(
    response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None
) -> None:
    response.topics = [
        response.TopicResponse(
            name=topic.name,
            partitions=[
                response.PartitionResponse(
                    partition_index=each, error_code=error, error_message=message or error.message
                )
                for each in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]


def _describe_transactions(
    response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None
) -> None:
    response.transaction_states = [
        response.TransactionState(transactional_id=each, error_code=error) for each in request.transactional_ids
    ]


def _find_coordinator(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    if call.api_version >= 4:
        response.coordinators = [
            response.Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
        return
    response.node_id = response.port = -1
    if call.api_version >= 1:
        response.error_message = message or error.message


def _describe_groups(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.groups = [response.DescribedGroup(group_id=group_id, error_code=error) for group_id in request.groups]


def _delete_groups(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    response.results = [
        response.DeletableGroupResult(group_id=group_id, error_code=error) for group_id in request.groups_names
    ]


def _offset_fetch(response: Any, request: Any, call: RequestContext, error: ErrorCode, message: str | None) -> None:
    if call.api_version >= 8:
        response.groups = [
            response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error) for group in request.groups
        ]
    elif call.api_version < 2:
        response.topics = [
            response.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    response.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=error
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]


_ITEMIZED: Final[dict[int, Build]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _epochs,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_FETCH: _offset_fetch,
}
