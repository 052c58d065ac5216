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
from kafkacore.server.context import BrokerContext

TOPIC_IDS_SINCE: Final = 10  # KIP-848

read = OffsetCommit


def handle(broker: BrokerContext, call: RequestContext, commit: OffsetCommit) -> bytes | Awaitable[bytes]:
    _find_topics(broker.image, commit, by_id=call.api_version >= TOPIC_IDS_SINCE)
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


def _find_topics(image: MetadataImage, commit: OffsetCommit, *, by_id: bool) -> None:
    for number, name in enumerate(commit.names):
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
