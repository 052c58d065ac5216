"""A follower accepts a snapshot only if the snapshot is complete and ahead of the follower's log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse, SnapshotFooterRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.control import control_batch, data_batch
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.roles import Follower
from metadata_files import append
from raft_replica import CLUSTER, Replica, snapshot_of, voters

PART_BYTES = 90


def offer(replica: Replica, snapshot_id: OffsetAndEpoch) -> None:
    offered = FetchResponse.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    replica.answer(records=b"", high_watermark=snapshot_id.offset, snapshot_id=offered)


def send_parts(replica: Replica, snapshot_id: OffsetAndEpoch, data: bytes, size: int | None = None) -> None:
    """Answers as the leader does, as long as the follower requests this snapshot."""
    named = FetchSnapshotResponse.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    for position in range(0, len(data), PART_BYTES):
        role = replica.raft.role
        if not isinstance(role, Follower) or role.download is None:
            return
        sent = replica.answer(
            snapshot_id=named,
            size=len(data) if size is None else size,
            position=position,
            unaligned_records=data[position : position + PART_BYTES],
        )
        asked: Any = sent.request
        assert isinstance(asked, FetchSnapshotRequest)
        assert asked.topics[0].partitions[0].position == position


@pytest.fixture
def file_log(tmp_path: Path) -> Iterator[FileLog]:
    directory = LogDirectory(Environment(), str(tmp_path))
    log = FileLog(directory)
    yield log
    log.close()
    directory.close()


AHEAD = OffsetAndEpoch(10, 4)
LATER_EPOCH = OffsetAndEpoch(2, 4)  # the log ends above this offset, but in an earlier epoch


@pytest.mark.parametrize("snapshot_id", [AHEAD, LATER_EPOCH])
def test_whole_snapshot_takes_the_place_of_the_log(file_log: FileLog, snapshot_id: OffsetAndEpoch) -> None:
    replica = Replica(1, 2, 3, log=file_log)
    replica.follow(3, b"a", b"b", b"c")
    replica.raft.replica.become_follower(4, 2, ("n2", 9093))
    offer(replica, snapshot_id)
    send_parts(replica, snapshot_id, snapshot_of(snapshot_id, b"a", b"b"))
    assert file_log.snapshots() == [snapshot_id] == [replica.raft.replica.loaded_snapshot]
    assert (file_log.start_offset, file_log.end_offset) == (snapshot_id.offset, snapshot_id.offset)
    replica.answer(records=data_batch([b"x"], snapshot_id.offset, 4, 0), high_watermark=snapshot_id.offset + 1)
    assert replica.raft.high_watermark == snapshot_id.offset + 1


def test_snapshot_of_an_earlier_epoch_takes_the_place_of_a_log_that_ends_below_it(file_log: FileLog) -> None:
    """The record of epoch 5 was never committed. The leader of epoch 6 never received it, and made its snapshot from
    records of epoch 4."""
    replica = Replica(1, 2, 3, log=file_log)
    replica.follow(3, b"a", b"b")
    replica.follow(5, b"c")
    replica.raft.replica.become_follower(6, 2, ("n2", 9093))
    offer(replica, AHEAD)
    send_parts(replica, AHEAD, snapshot_of(AHEAD, b"a", b"b"))
    assert file_log.snapshots() == [AHEAD] == [replica.raft.replica.loaded_snapshot]
    assert (file_log.start_offset, file_log.end_offset) == (AHEAD.offset, AHEAD.offset)
    replica.answer(records=data_batch([b"x"], AHEAD.offset, 6, 0), high_watermark=AHEAD.offset + 1)
    assert replica.raft.high_watermark == AHEAD.offset + 1


def test_start_empties_a_log_that_ends_below_its_snapshot_of_an_earlier_epoch(tmp_path: Path) -> None:
    """The download was complete, but the node crashed before it emptied the log."""
    directory = LogDirectory(Environment(), str(tmp_path))
    log = FileLog(directory)
    for offset, epoch in ((0, 3), (1, 3), (2, 5)):
        data = data_batch([b"x"], offset, epoch, 0)
        assert data is not None
        append(log, data)
    log.write_snapshot(AHEAD, 0, snapshot_of(AHEAD, b"a", b"b"))
    log.finish_snapshot(AHEAD)
    log.close()
    again = FileLog(directory)
    assert (again.start_offset, again.end_offset) == (AHEAD.offset, AHEAD.offset)
    again.close()
    directory.close()


WHOLE = snapshot_of(AHEAD, b"a" * 50, b"b" * 50)
FOOTER = len(control_batch([SnapshotFooterRecord(version=0)], 0, 4, 0))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (flipped(WHOLE, 70), None),  # a bit in the header
        (flipped(WHOLE, len(WHOLE) // 2), None),
        (flipped(WHOLE, len(WHOLE) - 1), None),
        (WHOLE[:-FOOTER], None),
        (WHOLE[:-5], None),
        (WHOLE + WHOLE[-FOOTER:], None),  # data after the footer
        (WHOLE[-FOOTER:], None),  # the footer alone
        (WHOLE, 40),  # more bytes than the leader announced
        (WHOLE, 0),
        (WHOLE, -1),
        (b"\xff" * 200, None),
        (b"\0" * 200, None),
    ],
    ids=["header", "middle", "footer", "no footer", "cut off", "two footers", "no header", "longer", "empty",
         "negative", "noise", "zeros"],
)  # fmt: skip
def test_damaged_snapshot_leaves_the_log_as_it_was(
    data: bytes, size: int | None, file_log: FileLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(1, 2, 3, log=file_log)
    replica.follow(3, b"a", b"b", b"c")
    before = file_log.read(0, 1 << 20)
    replica.raft.replica.become_follower(4, 2, ("n2", 9093))
    offer(replica, AHEAD)
    send_parts(replica, AHEAD, data, size)
    assert file_log.snapshots() == [] and replica.raft.replica.loaded_snapshot is None
    assert file_log.read(0, 1 << 20) == before
    assert not list(tmp_path.glob("*/*.checkpoint"))
    role = replica.raft.role
    assert isinstance(role, Follower) and role.download is None
    assert len([each for each in caplog.records if "is impossible" in each.getMessage()]) == 1
    # The follower repeats the request, and accepts a complete snapshot.
    offer(replica, AHEAD)
    send_parts(replica, AHEAD, WHOLE)
    assert file_log.snapshots() == [AHEAD] and file_log.end_offset == AHEAD.offset


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot_id": FetchSnapshotResponse.SnapshotId(end_offset=10, epoch=3)},
        {"snapshot_id": FetchSnapshotResponse.SnapshotId(end_offset=11, epoch=4)},
        {"position": 1},
        {"position": -1},
        {"unaligned_records": b""},
    ],
    ids=["epoch", "offset", "position", "negative position", "no bytes"],
)
def test_part_of_another_snapshot_or_place_is_not_taken(change: dict[str, Any], file_log: FileLog) -> None:
    replica = Replica(1, 2, 3, log=file_log)
    replica.follow(4)
    offer(replica, AHEAD)
    whole = {
        "snapshot_id": FetchSnapshotResponse.SnapshotId(end_offset=10, epoch=4),
        "size": len(WHOLE),
        "position": 0,
        "unaligned_records": WHOLE,
    }
    replica.answer(**{**whole, **change})
    assert file_log.snapshots() == [] and file_log.end_offset == 0
    role = replica.raft.role
    assert isinstance(role, Follower) and role.download is None


class InterruptedLeader:
    """A leader that offers the snapshot AHEAD and sends its first part. The download then ends as `how` says."""

    def __init__(self, directory: Path, how: str) -> None:
        self.directory, self.how = directory, how
        self.interrupted = asyncio.Event()

    def parts(self) -> list[str]:
        return [each.name for each in self.directory.glob("*/*.part")]

    async def send(self, host: str, port: int, request: Any) -> Any:
        leader = (2, 4)
        if isinstance(request, FetchSnapshotRequest):
            position = request.topics[0].partitions[0].position
            if position == 0:
                named = FetchSnapshotResponse.SnapshotId(end_offset=AHEAD.offset, epoch=AHEAD.epoch)
                return messages.answer(
                    request, leader, None, error_code=0, snapshot_id=named, size=len(WHOLE), position=0,
                    unaligned_records=WHOLE[:PART_BYTES],
                )  # fmt: skip
            assert self.parts() == ["00000000000000000010-0000000004.checkpoint.part"]
            self.interrupted.set()
            if self.how == "connection":
                raise OSError("the connection is lost")
            if self.how == "refusal":
                return messages.answer(request, leader, None, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
            return messages.answer(request, (3, 5), None, error_code=ErrorCode.FENCED_LEADER_EPOCH)
        if request.NAME == "FetchRequest" and not self.interrupted.is_set():
            offered = FetchResponse.SnapshotId(end_offset=AHEAD.offset, epoch=AHEAD.epoch)
            return messages.answer(
                request, leader, None, error_code=0, records=b"", high_watermark=10, snapshot_id=offered
            )
        return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("how", ["connection", "refusal", "new leader"])
def test_parts_are_removed_when_the_download_is_given_up(
    file_log: FileLog, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        leader, abandoned, loop = InterruptedLeader(tmp_path, how), asyncio.Event(), asyncio.get_running_loop()

        def abandon(snapshot_id: OffsetAndEpoch) -> None:
            FileLog.abandon_snapshot(file_log, snapshot_id)
            loop.call_soon_threadsafe(abandoned.set)

        monkeypatch.setattr(file_log, "abandon_snapshot", abandon)
        with ThreadPoolExecutor(2) as pool:
            driver = RaftDriver(
                RaftConfig(1, Uuid(b"d" * 16), CLUSTER, voters=voters(1, 2, 3)), file_log, None,
                decode=list, persist=lambda state, version: None, network=leader, executor=pool, random=Random(1),
                now_ms=lambda: 0, wall_ms=lambda: 0, on_fault=lambda error: pytest.fail(repr(error)),
            )  # fmt: skip
            await driver.start()
            driver.raft.replica.become_follower(4, 2, ("n2", 9093))
            driver.raft.tick(0)
            driver._schedule()
            async with asyncio.timeout(20):
                await abandoned.wait()
            assert leader.interrupted.is_set() and leader.parts() == []
            await driver.stop()

    asyncio.run(story())
