"""OffsetDelete of more offsets than the tombstones in one batch of the log can delete."""

from __future__ import annotations

import asyncio
from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.coordinator.group.commits import offset_tombstones
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from kafkacore.server.handlers.broker import group_calls, offset_delete

PARTITIONS = 50


@pytest.mark.parametrize(("limit_bytes", "calls"), [(1 << 20, 1), (5_000, 40), (100, 150)])
def test_offsets_are_deleted_in_batches_that_fit_into_the_log(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int, calls: int
) -> None:
    group_id, names = "g" * 300, ["t" * 249, "u", "v"]
    asked: list[OffsetDeleteRequest] = []

    def ask(_: object, __: object, request: OffsetDeleteRequest, operation: object) -> OffsetDeleteResponse:
        asked.append(request)
        made = OffsetDeleteResponse
        return made(
            topics=[
                made.OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        made.OffsetDeleteResponsePartition(partition_index=each.partition_index)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    monkeypatch.setattr(group_calls, "ask", ask)
    rows = array("i", [0] * PARTITIONS)
    broker: Any = SimpleNamespace(
        image=SimpleNamespace(topic=lambda name: SimpleNamespace(partition_rows=rows)),
        groups=SimpleNamespace(max_batch_bytes=lambda: limit_bytes),
    )
    made = OffsetDeleteRequest
    partitions = [made.OffsetDeleteRequestPartition(partition_index=index) for index in range(PARTITIONS)]
    topics = [made.OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in names]
    call = RequestContext(ApiKey.OFFSET_DELETE, 0, 7, None, "PLAINTEXT", "127.0.0.1")
    response: Any = asyncio.run(offset_delete.handle(broker, call, made(group_id=group_id, topics=topics)))
    told = {(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions}
    assert (response.error_code, told) == (
        ErrorCode.NONE,
        {(name, index) for name in names for index in range(PARTITIONS)},
    )
    for request in asked:
        removed = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
        records = offset_tombstones(group_id, removed)
        fits = RecordBatchBuilder(limit_bytes=limit_bytes).append_all(0, records)
        assert fits or len(records) == 1
    assert len(asked) <= calls
