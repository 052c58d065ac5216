"""OffsetCommit of many topics, on an event loop that also serves others."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from kafkacore.server.handlers.broker import offset_commit

VERSION = 8


@pytest.mark.parametrize(("count", "least_turns"), [(10, 0), (5_000, 20)])
def test_the_loop_serves_others_while_a_commit_names_many_topics(count: int, least_turns: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(name=f"topic-{number}", partitions=[partition])
        for number in range(count)
    ]
    commit = OffsetCommit(OffsetCommitRequest(group_id="g", topics=topics).encode(VERSION), VERSION)
    broker: Any = SimpleNamespace(image=SimpleNamespace(topic={}.get))
    call = RequestContext(ApiKey.OFFSET_COMMIT, VERSION, 7, None, "PLAINTEXT", "127.0.0.1")
    turns = itertools.count()

    async def others() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    async def answer() -> bytes:
        clock = itertools.count()
        asyncio.get_running_loop().slice_clock = lambda: next(clock) / 1000  # type: ignore[attr-defined]
        serving = asyncio.create_task(others())
        answer = offset_commit.handle(broker, call, commit)
        response = await answer if isinstance(answer, Awaitable) else answer
        serving.cancel()
        return response

    response = OffsetCommitResponse.decode(asyncio.run(answer())[5:], VERSION)
    assert [topic.name for topic in response.topics] == [f"topic-{number}" for number in range(count)]
    codes = {each.error_code for topic in response.topics for each in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert next(turns) >= least_turns
