"""OffsetDelete: removes a group's offsets for partitions that the group no longer reads (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Final

from kafkacore.coordinator.group.records import tombstone_bytes
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message, OffsetDeleteRequest, OffsetDeleteResponse
from kafkacore.runtime.slices import Slice, Work, finish
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls

BATCH: Final = 1_000  # the group's shard handles at most this many partitions in one iteration of the loop

AskedTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition
Refused = dict[str, list[Partition]]  # keyed by topic


async def handle(broker: BrokerContext, call: RequestContext, request: OffsetDeleteRequest) -> Message:
    refused = await finish(_take_out_unknown(broker.image, request))
    answers: dict[str, Topic] = {}
    slice_ = Slice()
    # The request goes to the group's shard even if no partition is left, because the group may not exist.
    most_bytes = broker.groups.max_batch_bytes() // 2  # the deletions of one iteration share one batch of the log
    for topics in list(_batches(request, most_bytes)) or [[]]:
        await slice_.give_way()
        asked = OffsetDeleteRequest(group_id=request.group_id, topics=topics)
        response = await _delete(broker, call, asked)
        if response.error_code != ErrorCode.NONE:
            return response
        for topic in response.topics:
            answers.setdefault(topic.name, Topic(name=topic.name)).partitions += topic.partitions
    for name, partitions in refused.items():
        answers.setdefault(name, Topic(name=name)).partitions += partitions
    return OffsetDeleteResponse(topics=list(answers.values()))


async def _delete(broker: BrokerContext, call: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    answer: OffsetDeleteResponse | Awaitable[OffsetDeleteResponse] = group_calls.ask(
        broker, call, request, lambda shard, waiter, now_ms: shard.offset_delete(request, waiter, now_ms)
    )
    return await answer if isinstance(answer, Awaitable) else answer


def _batches(request: OffsetDeleteRequest, most_bytes: int) -> Iterator[list[AskedTopic]]:
    batch: list[AskedTopic] = []
    room, room_bytes = BATCH, most_bytes
    for topic in request.topics:
        each_bytes = tombstone_bytes(request.group_id, topic.name)
        most = max(1, min(BATCH, most_bytes // each_bytes))
        for start in range(0, len(topic.partitions), most):
            part = topic.partitions[start : start + most]
            if batch and (len(part) > room or len(part) * each_bytes > room_bytes):
                yield batch
                batch, room, room_bytes = [], BATCH, most_bytes
            batch.append(AskedTopic(name=topic.name, partitions=part))
            room -= len(part)
            room_bytes -= len(part) * each_bytes
    if batch:
        yield batch


def _take_out_unknown(image: MetadataImage, request: OffsetDeleteRequest) -> Work[Refused]:
    """Removes nonexistent partitions from the request, and returns their results."""
    refused: Refused = {}
    for topic in request.topics:
        found = image.topic(topic.name)
        rows = found.partition_rows if found is not None else ()
        left = []
        for each in topic.partitions:
            yield
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
