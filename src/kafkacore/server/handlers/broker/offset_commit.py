"""OffsetCommit: stores how far a group has read. This handler refuses partitions that do not exist. The group's shard
decides about all others."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.made_ids import shown
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import Work, in_slices
from kafkacore.server.context import BrokerContext

TOPIC_IDS_SINCE: Final = 10  # KIP-848
_STRIDE: Final = 64  # the number of topics that are found between two readings of the clock

read = OffsetCommit


def handle(broker: BrokerContext, call: RequestContext, commit: OffsetCommit) -> bytes | Awaitable[bytes]:
    by_id, count = call.api_version >= TOPIC_IDS_SINCE, len(commit.names)
    if commit.is_read and count <= _STRIDE:
        _find_topics(broker.image, commit, range(count), by_id=by_id)
        return _commit(broker, call, commit)
    found = in_slices(_find_in_parts(broker.image, commit, by_id=by_id))
    return _commit(broker, call, commit) if found is None else _commit_later(broker, call, commit, found)


async def _commit_later(
    broker: BrokerContext, call: RequestContext, commit: OffsetCommit, found: Awaitable[None]
) -> bytes:
    await found
    response = _commit(broker, call, commit)
    return response if isinstance(response, bytes) else await response


def _commit(broker: BrokerContext, call: RequestContext, commit: OffsetCommit) -> bytes | Awaitable[bytes]:
    if len(commit):

        def operation(shard: Any, waiter: Any, now_ms: int) -> Any:
            return shard.offset_commit(commit, waiter, now_ms)

        try:
            future = broker.groups.ask(commit.group_id, operation)
            if not future.done():
                return _later(call, commit, future)
        except KafkaError as error:
            commit.error = error.code
    return _response(call, commit)


def _find_in_parts(image: MetadataImage, commit: OffsetCommit, *, by_id: bool) -> Work[None]:
    while not commit.is_read:
        commit.read_more()
        yield
    count = len(commit.names)
    for first in range(0, count, _STRIDE):
        _find_topics(image, commit, range(first, min(first + _STRIDE, count)), by_id=by_id)
        yield


def _find_topics(image: MetadataImage, commit: OffsetCommit, numbers: range, *, by_id: bool) -> None:
    for number in numbers:
        name = commit.names[number]
        found = image.topic_by_id(Uuid(commit.topic_id(number))) if by_id else image.topic(name)
        if found is None:
            commit.refuse(number, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            rows = found.partition_rows
            commit.find(number, found.name, shown(found.topic_id), rows, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _later(call: RequestContext, commit: OffsetCommit, committed: Awaitable[OffsetCommit]) -> bytes:
    await committed
    return _response(call, commit)


def _response(call: RequestContext, commit: OffsetCommit) -> bytes:
    return commit.response(apis.response_header(call.api_key, call.api_version, call.correlation_id))
