"""OffsetFetch for all offsets of a group, in one part and in several parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from group_log import GroupLog
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import OffsetFetchRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.handlers.broker import offset_fetch

HERE = Uuid(b"t" * 16)


class Groups:
    """The groups of a broker that leads a single partition of `__consumer_offsets`."""

    def __init__(self, log: GroupLog) -> None:
        self._shard = log.shard

    def shard_of(self, group_id: str) -> Any:
        return self._shard

    def ask(self, group_id: str, operation: Any) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        for each, response in operation(self._shard, waiter, 0).answers:
            each.set_result(response)
        return waiter


@pytest.mark.parametrize("batch", [1, 1_000])
@pytest.mark.parametrize("version", [9, 10])
def test_offsets_of_a_deleted_topic_are_left_out_when_topics_have_ids(
    version: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_fetch, "BATCH", batch)
    log = GroupLog()
    log.commit_offsets("c", {("gone", 0): 5, ("here", 0): 6})
    here = SimpleNamespace(name="here", topic_id=HERE)
    image = SimpleNamespace(topic={"here": here}.get, topic_by_id={HERE: here}.get)
    broker: Any = SimpleNamespace(groups=Groups(log), image=image)
    call = RequestContext(ApiKey.OFFSET_FETCH, version, 0, None, "PLAINTEXT", "127.0.0.1")
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)

    async def fetch() -> Any:
        answer: Any = offset_fetch.handle(broker, call, OffsetFetchRequest(groups=[asked]))
        return await answer if isinstance(answer, Awaitable) else answer

    [group] = asyncio.run(fetch()).groups
    found = {topic.name: [(p.committed_offset, p.error_code) for p in topic.partitions] for topic in group.topics}
    assert found == ({"here": [(6, 0)]} if version == 10 else {"gone": [(5, 0)], "here": [(6, 0)]})
