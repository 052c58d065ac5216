"""The loader skips records that the group coordinator's shard refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import pack

import pytest

from group_log import SETTINGS, Client, Uuids
from kafkacore._fast.log.partition_handle import ReadBytes
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.shard import GroupShard
from kafkacore.coordinator.loader import Loader
from kafkacore.protocol.messages import ConsumerGroupMetadataKey, GroupMetadataValue

Member = GroupMetadataValue.MemberMetadata


class Log:
    """A log with one batch, which contains the given records."""

    def __init__(self, *written: tuple[bytes, bytes | None]) -> None:
        builder = RecordBatchBuilder()
        for key, value in written:
            builder.append(0, key, value)
        self._records = builder.build()
        self.log_start_offset = 0
        self.end_offset = len(written)

    def read(self, *_: object) -> ReadBytes:
        return ReadBytes(0, self._records, 0, self.end_offset, self.end_offset, 0, 1, 0, -1, -1, [], False)


def group(group_id: str, protocol: str | None = "range") -> tuple[bytes, bytes]:
    """Returns the record of a group with one member."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol=protocol,
        leader="m",
        members=[Member(member_id="m", client_id="c", client_host="/h", session_timeout=10_000)],
    )
    return records.group_key(group_id), records.group_value(value)


async def here(work: Callable[[], ReadBytes]) -> ReadBytes:
    return work()


def test_refused_record_is_skipped_and_the_others_are_loaded(caplog: pytest.LogCaptureFixture) -> None:
    key = ConsumerGroupMetadataKey(group_id="first")
    other_kind = pack(">h", key.API_KEY) + key.encode(0)
    log = Log(group("first"), group("undecided", None), (other_kind, b"x"), (b"\0\x63", b"x"), group("last"))
    shard = GroupShard(SETTINGS, Uuids())
    summary = asyncio.run(Loader("words-0", log, 0, shard, 1 << 20, here).load())
    assert (summary.records, summary.end_offset) == (5, 5)
    described = [shard.describe_group(Client(), each) for each in ("first", "undecided", "last")]
    assert [each.group_state for each in described] == ["Stable", "Dead", "Stable"]
    assert [f"offset {offset} cannot be read" in caplog.text for offset in range(5)] == [False, True, True, True, False]
