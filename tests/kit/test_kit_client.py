"""The small client of the test kit, with a node that answers from a list of batches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.testing.client import Client


class Node:
    """Answers a Fetch with the batch that contains its offset. `asked` contains the offsets of all Fetches."""

    def __init__(self, *batches: tuple[int, int, bytes]) -> None:
        self._batches = batches
        self.asked: list[int] = []

    async def request(self, request: Any, version: int | None = None) -> Any:
        offset = request.topics[0].partitions[0].fetch_offset
        self.asked.append(offset)
        assert len(self.asked) < 100
        records = next(data for first, last, data in self._batches if first <= offset <= last)
        told = SimpleNamespace(error_code=0, records=records)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[told])])

    async def close(self) -> None:
        """Does nothing."""


def batch(first: int, count: int, *, control: bool = False) -> tuple[int, int, bytes]:
    builder = RecordBatchBuilder(base_offset=first, control=control)
    for number in range(first, first + count):
        builder.append(0, b"\0\0\0\1" if control else None, b"%d" % number, [])
    return first, first + count - 1, bytes(builder.build())


def test_consume_goes_on_after_a_transaction_marker_when_the_marker_comes_alone() -> None:
    node = Node(batch(0, 3), batch(3, 1, control=True), batch(4, 2))
    found = asyncio.run(Client(node).consume("t", 0, 1, 4, 5.0))
    assert [record.offset for record in found] == [1, 2, 4, 5]
    assert node.asked == [1, 3, 4]


class Taking:
    """Acknowledges each Produce. `batches` contains the batches of all requests."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    async def request(self, request: Any, version: int | None = None) -> Any:
        self.batches.append(request.topic_data[0].partition_data[0].records)
        told = SimpleNamespace(error_code=0, base_offset=7)
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[told])])


def test_record_is_sent_when_it_is_larger_than_the_default_limit_of_a_batch() -> None:
    node, value = Taking(), b"v" * (2 << 20)
    assert asyncio.run(Client(node).produce("t", value, timestamp_ms=0)) == 7
    [sent] = [record for batch in Batches(node.batches[0]) for record in batch]
    assert sent.value == value
