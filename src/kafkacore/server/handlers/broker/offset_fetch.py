"""OffsetFetch: how far groups have come; from version 8 on many of them at once (KIP-709), each by its shard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from kafkacore.coordinator.group.answers import fetch_error
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import Message, OffsetFetchRequest, OffsetFetchResponse
from kafkacore.protocol.uuid import ZERO
from kafkacore.server.context import BrokerContext

BATCHED_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10  # KIP-848
NO_OFFSET: Final = -1

Topics = OffsetFetchResponse.OffsetFetchResponseTopics
Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(broker: BrokerContext, call: RequestContext, request: OffsetFetchRequest) -> Message | Awaitable[Message]:
    found = [_fetch(broker, call, group, request.require_stable) for group in _groups(call, request)]
    if any(isinstance(each, Awaitable) for each in found):
        return _later(call, found)
    return _response(call, found)


def _groups(call: RequestContext, request: OffsetFetchRequest) -> Sequence[Any]:
    if call.api_version >= BATCHED_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        named = OffsetFetchRequest.OffsetFetchRequestTopics
        topics = [named(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics]
    return [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _fetch(broker: BrokerContext, call: RequestContext, group: Any, require_stable: bool) -> Any:
    by_id = call.api_version >= TOPIC_IDS_SINCE
    unknown = _take_out_unknown(broker.image, group) if by_id and group.topics is not None else []
    try:
        future = broker.groups.ask(
            group.group_id, lambda shard, waiter, now_ms: shard.offset_fetch(group, require_stable, waiter)
        )
    except KafkaError as error:
        return fetch_error(group, error.code, call.api_version)
    if future.done():
        return _finished(broker, call, group, future.result(), unknown)
    return _finished_later(broker, call, group, future, unknown)


def _take_out_unknown(image: MetadataImage, group: Any) -> list[Any]:
    """Leaves what exists in the request, with names, and returns the answers to ids that nobody has."""
    unknown, known = [], []
    for topic in group.topics:
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            unknown.append(_unknown(topic))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return unknown


async def _finished_later(
    broker: BrokerContext, call: RequestContext, group: Any, answer: Awaitable[Any], unknown: list[Any]
) -> Any:
    return _finished(broker, call, group, await answer, unknown)


def _finished(broker: BrokerContext, call: RequestContext, group: Any, answer: Any, unknown: list[Any]) -> Any:
    if answer.error_code != ErrorCode.NONE:
        return fetch_error(group, answer.error_code, call.api_version)
    if call.api_version >= TOPIC_IDS_SINCE:
        for topic in answer.topics:
            if topic.topic_id == ZERO:
                found = broker.image.topic(topic.name)
                topic.topic_id = ZERO if found is None else found.topic_id
        # Offsets of a topic that is no more have no id to be told by.
        answer.topics = [topic for topic in answer.topics if topic.topic_id != ZERO] + unknown
    return answer


def _unknown(topic: Any) -> Any:
    return Topics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            Partitions(partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for index in topic.partition_indexes
        ],
    )


async def _later(call: RequestContext, found: list[Any]) -> Message:
    waiting = [asyncio.ensure_future(each) for each in found if isinstance(each, Awaitable)]
    done = iter(await asyncio.gather(*waiting))
    return _response(call, [next(done) if isinstance(each, Awaitable) else each for each in found])


def _response(call: RequestContext, groups: list[Any]) -> Message:
    if call.api_version >= BATCHED_SINCE:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic
    partition_class = OffsetFetchResponse.OffsetFetchResponsePartition
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            topic_class(
                name=topic.name,
                partitions=[
                    partition_class(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
