"""OffsetFetch: returns committed offsets of groups. From version 8 on, a request can contain many groups (KIP-709). The
shard of each group answers for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from kafkacore.coordinator.group.answers import fetch_error
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.made_ids import shown
from kafkacore.protocol.messages import Message, OffsetFetchRequest, OffsetFetchResponse
from kafkacore.protocol.uuid import ZERO
from kafkacore.runtime.slices import Slice, Work, finish, finish_now
from kafkacore.server.context import BrokerContext

BATCHED_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10  # KIP-848
NO_OFFSET: Final = -1
BATCH: Final = 1_000  # limit of partitions that a shard handles in one iteration of the loop
GROUPS_AT_ONCE: Final = 500

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopics
Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topics = OffsetFetchResponse.OffsetFetchResponseTopics
Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(broker: BrokerContext, call: RequestContext, request: OffsetFetchRequest) -> Message | Awaitable[Message]:
    groups = _groups(call, request)
    if sum(_size(broker, each) for each in groups[:BATCH]) > BATCH or len(groups) > BATCH:
        return _in_batches(broker, call, groups, request.require_stable)
    found = [_fetch(broker, call, group, request.require_stable) for group in groups]
    if any(isinstance(each, Awaitable) for each in found):
        return _later(call, found)
    return finish_now(_response(call, found))


def _size(broker: BrokerContext, group: AskedGroup) -> int:
    """Returns the number of offsets in the response."""
    if group.topics is not None:
        return 1 + sum(len(topic.partition_indexes) for topic in group.topics)
    try:
        return 1 + broker.groups.shard_of(group.group_id).offset_count(group.group_id)
    except KafkaError:
        return 1


async def _later(call: RequestContext, found: list[Group | Awaitable[Group]]) -> Message:
    waiting = [asyncio.ensure_future(each) for each in found if isinstance(each, Awaitable)]
    done = iter(await asyncio.gather(*waiting))
    return finish_now(_response(call, [next(done) if isinstance(each, Awaitable) else each for each in found]))


def _groups(call: RequestContext, request: OffsetFetchRequest) -> Sequence[AskedGroup]:
    if call.api_version >= BATCHED_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [AskedTopic(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics]
    return [AskedGroup(group_id=request.group_id, topics=topics)]


def _fetch(
    broker: BrokerContext, call: RequestContext, group: AskedGroup, require_stable: bool
) -> Group | Awaitable[Group]:
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


def _take_out_unknown(image: MetadataImage, group: AskedGroup) -> list[Topics]:
    """Sets the names of the request's topics. Removes topics with unknown ids, and returns their results."""
    unknown, known = [], []
    for topic in group.topics or ():
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            unknown.append(_unknown(topic))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return unknown


def _unknown(topic: AskedTopic) -> Topics:
    return Topics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            Partitions(partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for index in topic.partition_indexes
        ],
    )


async def _finished_later(
    broker: BrokerContext, call: RequestContext, group: AskedGroup, answer: Awaitable[Group], unknown: list[Topics]
) -> Group:
    return _finished(broker, call, group, await answer, unknown)


def _finished(
    broker: BrokerContext, call: RequestContext, group: AskedGroup, answer: Group, unknown: list[Topics]
) -> Group:
    if answer.error_code != ErrorCode.NONE:
        return fetch_error(group, answer.error_code, call.api_version)
    if call.api_version >= TOPIC_IDS_SINCE:
        for topic in answer.topics:
            if topic.topic_id == ZERO:
                found = broker.image.topic(topic.name)
                topic.topic_id = ZERO if found is None else shown(found.topic_id)
        # This leaves out the offsets of deleted topics, because such a topic has no id.
        answer.topics = [topic for topic in answer.topics if topic.topic_id != ZERO] + unknown
    return answer


# --- many offsets ---


async def _in_batches(
    broker: BrokerContext, call: RequestContext, groups: Sequence[AskedGroup], require_stable: bool
) -> Message:
    """Fetches the offsets of the groups concurrently. So a group that waits for its commits does not delay the
    others."""
    found: list[Group] = []
    slice_ = Slice()
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        some = groups[start : start + GROUPS_AT_ONCE]
        found += await asyncio.gather(*(_fetch_in_batches(broker, call, each, require_stable) for each in some))
        await slice_.give_way()
    return await finish(_response(call, found))


async def _fetch_in_batches(
    broker: BrokerContext, call: RequestContext, group: AskedGroup, require_stable: bool
) -> Group:
    made: Group | None = None
    slice_ = Slice()
    try:
        batches = await _batches(broker, group, by_id=call.api_version >= TOPIC_IDS_SINCE)
    except KafkaError as error:
        return fetch_error(group, error.code, call.api_version)
    for topics in batches:
        await slice_.give_way()
        asked = AskedGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=topics
        )
        answer = _fetch(broker, call, asked, require_stable)
        part = await answer if isinstance(answer, Awaitable) else answer
        if part.error_code != ErrorCode.NONE:
            return part
        if group.topics is None:
            _drop_absent(part)
        if made is None:
            made = part
        else:
            _merge(made, part)
    return made or Group(group_id=group.group_id)


async def _batches(broker: BrokerContext, group: AskedGroup, *, by_id: bool) -> list[list[AskedTopic]]:
    """Splits the topics of a group into parts. The shard can handle each part in one iteration of the loop. If the
    group has no topics, the result is one empty part, because the shard must still check whether the member belongs to
    the group. With `by_id`, leaves out offsets of deleted topics, because such a topic has no id."""
    topics = group.topics
    if topics is None:
        shard = broker.groups.shard_of(group.group_id)
        topics = []
        for name, indexes in await finish(shard.committed_partitions(group.group_id)):
            known = broker.image.topic(name)
            if known is not None or not by_id:
                topic_id = ZERO if known is None else known.topic_id
                topics.append(AskedTopic(name=name, topic_id=topic_id, partition_indexes=indexes))
    batches: list[list[AskedTopic]] = [[]]
    room = BATCH
    slice_ = Slice()
    for topic in topics:
        await slice_.give_way()
        for start in range(0, len(topic.partition_indexes), BATCH):
            indexes = topic.partition_indexes[start : start + BATCH]
            if len(indexes) > room:
                batches.append([])
                room = BATCH
            batches[-1].append(AskedTopic(name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes))
            room -= len(indexes)
    return batches


def _drop_absent(group: Group) -> None:
    """Removes offsets that were deleted after their partitions were listed."""
    for topic in group.topics:
        topic.partitions = [each for each in topic.partitions if each.committed_offset >= 0 or each.error_code]


def _merge(made: Group, part: Group) -> None:
    for topic in part.topics:
        last = made.topics[-1] if made.topics else None
        if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
            last.partitions += topic.partitions
        else:
            made.topics.append(topic)


# --- the response ---


def _response(call: RequestContext, groups: list[Any]) -> Work[Message]:
    if call.api_version >= BATCHED_SINCE:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic
    partition_class = OffsetFetchResponse.OffsetFetchResponsePartition
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in group.topics:
        shown = topic_class(name=topic.name)
        for each in topic.partitions:
            shown.partitions.append(
                partition_class(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
            yield
        response.topics.append(shown)
    return response
