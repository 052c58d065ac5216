"""TxnOffsetCommit of more offsets than fit into one batch."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from kafkacore._fast.record.batch import Batches
from kafkacore.coordinator.group.transactional import Commits
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import TxnOffsetCommitRequest
from kafkacore.server.handlers.broker import txn_offset_commit

VERSION = 3
COUNT = 20


class Coordinator:
    """A stub of a broker. It notes the batches of the log and the offsets of the group's shard."""

    def __init__(self, max_batch_bytes: int) -> None:
        self.batches: list[bytes] = []
        self.pending: list[Commits] = []
        check = SimpleNamespace(appending=asyncio.Lock(), refusal=ErrorCode.NONE)
        shard = SimpleNamespace(
            validate_transactional=lambda request: None,
            transactional_appending=lambda *_: nullcontext(),
            transactional_appended=lambda group, producer, offset, commits: self.pending.append(commits),
        )

        @asynccontextmanager
        async def checking(*_: object) -> Any:
            yield check

        self.broker: Any = SimpleNamespace(
            blocking=None,
            config=SimpleNamespace(offsets_topic_compression_codec=0, offsets_commit_timeout_ms=1000),
            groups=SimpleNamespace(
                max_batch_bytes=lambda: max_batch_bytes,
                partition_of=lambda group: 0,
                settings=SimpleNamespace(metadata_max_bytes=4096),
                shard_of=lambda group: shard,
            ),
            image=SimpleNamespace(topic=lambda name: name, partition=lambda topic, index: index),
            replicas=SimpleNamespace(locate=lambda *_: (SimpleNamespace(append=self.append), ErrorCode.NONE)),
            transactions=SimpleNamespace(checking=checking, is_verified=lambda *_: True, appended=lambda *_: None),
            waits=SimpleNamespace(wall_ms=lambda: 5, now_ms=lambda: 5),
        )

    def append(self, records: bytes, *_: object) -> Any:
        self.batches.append(records)
        return SimpleNamespace(error=ErrorCode.NONE, first_offset=0, ack=None)


async def commit(max_batch_bytes: int) -> tuple[Coordinator, set[int]]:
    coordinator = Coordinator(max_batch_bytes)
    made = TxnOffsetCommitRequest
    offsets = [
        made.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata="m" * 100
        )
        for index in range(COUNT)
    ]
    request = made(
        transactional_id="x", group_id="g", producer_id=7, producer_epoch=0,
        topics=[made.TxnOffsetCommitRequestTopic(name="t", partitions=offsets)],
    )  # fmt: skip
    call = RequestContext(ApiKey.TXN_OFFSET_COMMIT, VERSION, 7, None, "PLAINTEXT", "127.0.0.1")
    response = await txn_offset_commit.handle(coordinator.broker, call, request)
    return coordinator, {each.error_code for topic in response.topics for each in topic.partitions}


def test_offsets_are_refused_together_when_they_do_not_fit_into_one_batch() -> None:
    coordinator, errors = asyncio.run(commit(1000))
    assert errors == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert (coordinator.batches, coordinator.pending) == ([], [])


def test_every_acknowledged_offset_is_in_the_log_when_the_topic_allows_large_batches() -> None:
    coordinator, errors = asyncio.run(commit(1 << 20))
    assert errors == {ErrorCode.NONE}
    [batch] = Batches(coordinator.batches[0])
    assert len(list(batch)) == COUNT == len(coordinator.pending[0])
