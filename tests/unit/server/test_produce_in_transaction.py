"""The order of a transaction's batches when the verification of one of them fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ProduceRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.handlers.broker import produce
from kafkacore.server.transactions import Refused, Transactions

PRODUCER_ID = 7
NOW_MS = 1_700_000_000_000


class Verifying(Transactions):
    """Transactions whose coordinator refuses as many verifications as `refusals` says."""

    refusals = 0

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[tuple[str, int]], produce: int
    ) -> dict[tuple[str, int], Refused]:
        if not self.refusals:
            return {}
        self.refusals -= 1
        return dict.fromkeys(places, Refused(ErrorCode.CONCURRENT_TRANSACTIONS, ""))


def transactions() -> Verifying:
    settings: Any = SimpleNamespace(
        node_id=1, request_timeout_ms=1000, socket_connection_setup_timeout_ms=1000, socket_request_max_bytes=1 << 20
    )
    return Verifying(lambda: settings, lambda: None, lambda name: None, random.Random(1), None)  # type: ignore[arg-type, return-value]


def batch(sequence: int) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence, transactional=True
    )  # fmt: skip
    builder.append(NOW_MS, None, b"v")
    return bytes(builder.build())


async def sent(broker: Any, version: int, sequence: int) -> ErrorCode:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(sequence))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[topic])
    call = RequestContext(ApiKey.PRODUCE, version, 7, None, "PLAINTEXT", "127.0.0.1")
    response = await produce.handle(broker, call, request)
    assert response is not None
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [9, 12])
def test_later_batch_is_appended_after_the_first_one_when_the_first_was_refused(tmp_path: Path, version: int) -> None:
    handle = PartitionHandle(
        LogDirectory(Environment(ManualClock(NOW_MS)), str(tmp_path)), "t", 0, Uuid.random(), LogSettings()
    )
    handle.become_leader(1, 0)
    verifying = transactions()
    broker: Any = SimpleNamespace(
        blocking=None,
        replicas=SimpleNamespace(by_name=lambda name, index: handle),
        transactions=verifying,
        waits=SimpleNamespace(now_ms=lambda: NOW_MS),
    )

    async def send() -> list[ErrorCode]:
        verifying.refusals = 1
        return [await sent(broker, version, sequence) for sequence in (0, 1, 0, 1, 1)]

    later = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    expected = [ErrorCode.CONCURRENT_TRANSACTIONS, later, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE]
    assert asyncio.run(send()) == expected
    assert [each.base_sequence for each in Batches(handle.read(0, isolation=0).records)] == [0, 1]
    handle.close()
