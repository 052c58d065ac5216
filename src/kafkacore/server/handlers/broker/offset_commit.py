"""OffsetCommit: how far a group has come. Partitions that do not exist are refused here, the others by the group."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from kafkacore.coordinator.group import answers
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import Message, OffsetCommitRequest, OffsetCommitResponse
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls

TOPIC_IDS_SINCE: Final = 10  # KIP-848

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
Partition = OffsetCommitResponse.OffsetCommitResponsePartition


def handle(broker: BrokerContext, call: RequestContext, request: OffsetCommitRequest) -> Message | Awaitable[Message]:
    refused = _take_out_unknown(broker.image, request, by_id=call.api_version >= TOPIC_IDS_SINCE)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)

    def operation(shard: Any, waiter: Any, now_ms: int) -> Any:
        return shard.offset_commit(call, request, waiter, now_ms)

    try:
        future = broker.groups.ask(request.group_id, operation)
    except KafkaError as error:
        return _merged(answers.commit_error(request, error.code), refused)
    answer = future.result() if future.done() else future
    return group_calls.then(answer, lambda response: _merged(response, refused))


def _take_out_unknown(image: MetadataImage, request: OffsetCommitRequest, *, by_id: bool) -> list[Any]:
    """Leaves what exists in the request, with name and id, and returns the answers to what does not."""
    refused, known = [], []
    for topic in request.topics:
        found = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        if found is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refused(topic, [each.partition_index for each in topic.partitions], error))
            continue
        topic.name, topic.topic_id = found.name, found.topic_id
        rows, count = found.partition_rows, len(found.partition_rows)
        indexes = [each.partition_index for each in topic.partitions]
        gone = [index for index in indexes if not 0 <= index < count or rows[index] < 0]
        if gone:
            refused.append(_refused(topic, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            missing = set(gone)
            topic.partitions = [each for each in topic.partitions if each.partition_index not in missing]
        if topic.partitions:
            known.append(topic)
    request.topics = known
    return refused


def _refused(topic: Any, indexes: list[int], error: ErrorCode) -> Topic:
    partitions = [Partition(partition_index=index, error_code=error) for index in indexes]
    return Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _merged(response: Any, refused: list[Any]) -> Message:
    """A topic of which some partitions were refused is told once."""
    by_name = {topic.name: topic for topic in response.topics} if refused else {}
    for topic in refused:
        if topic.name in by_name:  # a topic whose id nobody has, has no name
            by_name[topic.name].partitions += topic.partitions
        else:
            response.topics.append(topic)
    return response  # type: ignore[no-any-return]
