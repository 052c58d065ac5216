"""OffsetDelete: a group forgets how far it has come in partitions that it does not read any more (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kafkacore.metadata.image import MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message, OffsetDeleteRequest, OffsetDeleteResponse
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


def handle(broker: BrokerContext, call: RequestContext, request: OffsetDeleteRequest) -> Message | Awaitable[Message]:
    refused = _take_out_unknown(broker.image, request)
    answer = group_calls.ask(
        broker, call, request, lambda shard, waiter, now_ms: shard.offset_delete(request, waiter, now_ms)
    )
    return group_calls.then(answer, lambda response: _merged(response, refused))


def _take_out_unknown(image: MetadataImage, request: OffsetDeleteRequest) -> dict[str, list[Any]]:
    """Leaves what exists in the request, and returns the answers to what does not, by topic."""
    refused: dict[str, list[Any]] = {}
    for topic in request.topics:
        found = image.topic(topic.name)
        rows = found.partition_rows if found is not None else ()
        left = []
        for each in topic.partitions:
            if 0 <= each.partition_index < len(rows) and rows[each.partition_index] >= 0:
                left.append(each)
            else:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refused.setdefault(topic.name, []).append(
                    Partition(partition_index=each.partition_index, error_code=error)
                )
        topic.partitions = left
    request.topics = [topic for topic in request.topics if topic.partitions]
    return refused


def _merged(response: Any, refused: dict[str, list[Any]]) -> Message:
    if response.error_code != ErrorCode.NONE:
        return response  # type: ignore[no-any-return]
    for topic in response.topics:
        topic.partitions += refused.pop(topic.name, [])
    response.topics += [Topic(name=name, partitions=partitions) for name, partitions in refused.items()]
    return response  # type: ignore[no-any-return]
