"""Loads a partition's directory in every state that a crash can leave."""

from __future__ import annotations

import errno
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from broken_batches import resealed
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_load import LoadProgress
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.fault_disk import FaultDisk
from kafkacore.config.broker import BrokerConfig
from kafkacore.config.topic import TopicConfig
from kafkacore.storage import log_loader
from kafkacore.storage.errors import MalformedFileError
from kafkacore.storage.log_settings import log_settings
from processes import wait_until
from transactions import ABORT, marker, records, write_aborted_log

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.voters": "1@localhost:9093",
}
SETTINGS = LogSettings(segment_bytes=2000, index_interval_bytes=200)
READ_COMMITTED, READ_LOCAL = 1, 3
ABORTED_ENTRY_BYTES = 34
EPOCH_AT = 12  # the position of the leader epoch in a batch


def batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp=1_700_000_000_000, key=None, value=b"v" * 300)
    return builder.build()


def made(root: Path, batches: int = 20) -> Path:
    """Returns a log of 20 records, in segments of five records each."""
    handle = PartitionHandle(LogDirectory(Environment(), str(root)), "t", 0, Uuid.random(), SETTINGS)
    handle.become_leader(1, 0)
    for _ in range(batches):
        assert handle.append(batch()).error == 0
    handle.shut()
    return root / "t-0"


def loaded(root: Path, *, clean: bool = True, **options: int) -> PartitionHandle:
    handle = PartitionHandle(LogDirectory(Environment(), str(root)), "t", 0, None, SETTINGS)
    log_loader.load(handle, str(root / "t-0"), clean=clean, **options)
    return handle


def test_load_removes_deleted_files_and_orphaned_indexes(tmp_path: Path) -> None:
    path = made(tmp_path)
    for name in ("00000000000000000000.log.deleted", "00000000000000000003.index", "00000000000000000003.txnindex"):
        (path / name).write_bytes(b"x")
    (path / "00000000000000000009-0000000001.checkpoint.deleted").write_bytes(b"x")
    assert loaded(tmp_path).end_offset == 20
    assert not list(path.glob("*.log.deleted"))
    assert not list(path.glob("*3.index"))
    assert list(path.glob("*.checkpoint.deleted")), "only the metadata log removes its own snapshots"


def test_retention_deletes_the_segments_that_a_crash_left_below_the_log_start_offset(tmp_path: Path) -> None:
    made(tmp_path)
    handle = loaded(tmp_path, log_start_offset=12)
    assert handle.log_start_offset == 12
    handle.configure(LogSettings(segment_bytes=2000, retention_ms=-1))
    handle.restore_high_watermark(20)
    assert handle.delete_old_segments() == 2
    assert [part.base_offset for part in handle.segments()] == [10, 15]
    assert handle.log_start_offset == 12
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 2


def test_load_finishes_a_swap_that_was_under_way(tmp_path: Path) -> None:
    path = made(tmp_path)
    first, second = (f"{base:020d}" for base in (0, 5))
    joined = (path / f"{first}.log").read_bytes() + (path / f"{second}.log").read_bytes()
    for suffix in ("log", "index", "timeindex"):
        (path / f"{first}.{suffix}.swap").write_bytes(joined if suffix == "log" else b"")
    handle = loaded(tmp_path)
    assert [part.base_offset for part in handle.segments()] == [0, 10, 15]
    assert handle.read(7, 1).first_offset == 7
    assert handle.end_offset == 20


def test_load_refuses_a_damaged_swap_before_it_replaces_a_segment(tmp_path: Path) -> None:
    path = made(tmp_path)
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    swap = path / f"{0:020d}.log.swap"
    swap.write_bytes(batch() + b"garbage that is long enough to be the header of a batch, and is not one")
    with pytest.raises(MalformedFileError, match=rf"{swap}: at byte {len(batch())}: .*; the file was about to replace"):
        loaded(tmp_path)
    swap.unlink()
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before


@pytest.mark.parametrize("base", [0, 5])
def test_load_names_a_damaged_segment_when_it_rebuilds_producer_state_from_it(tmp_path: Path, base: int) -> None:
    path = made(tmp_path)
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    segment = path / f"{base:020d}.log"
    data = bytearray(segment.read_bytes())
    second = len(data) // 5
    data[second + 8] = 0xFF  # makes the length of the segment's second batch negative
    segment.write_bytes(data)
    told = rf"{segment}: at byte {second}: .*remove recovery-point-offset-checkpoint and \.kafka_cleanshutdown"
    with pytest.raises(MalformedFileError, match=told):
        loaded(tmp_path, clean=False, recovery_point=20)
    # After the operator has followed the advice in the message, the node loads the log.
    assert loaded(tmp_path, clean=False).end_offset == base + 1


def test_segment_cut_short_below_the_recovery_point_ends_with_its_last_whole_batch(tmp_path: Path) -> None:
    path = made(tmp_path)
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    segment = path / f"{5:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-9])
    handle = loaded(tmp_path, clean=False, recovery_point=20)
    assert (handle.end_offset, handle.read(10, 1).first_offset) == (20, 10)


def test_load_reverts_the_swap_of_an_incomplete_split(tmp_path: Path) -> None:
    path = made(tmp_path)
    (path / f"{5:020d}.log.swap").write_bytes(b"half")
    (path / f"{5:020d}.log.cleaned").write_bytes(b"half")
    handle = loaded(tmp_path)
    assert [part.base_offset for part in handle.segments()] == [0, 5, 10, 15]
    assert not list(path.glob("*.swap")) + list(path.glob("*.cleaned"))


@pytest.mark.parametrize("missing", ["index", "timeindex"])
def test_load_rebuilds_a_missing_index_after_a_clean_shutdown_too(tmp_path: Path, missing: str) -> None:
    path = made(tmp_path)
    before = {base: (path / f"{base:020d}.{missing}").read_bytes() for base in (5, 15)}
    for base in before:
        (path / f"{base:020d}.{missing}").unlink()
    progress = LoadProgress()
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0, None, SETTINGS)
    report = log_loader.load(handle, str(path), clean=True, progress=progress)
    assert report.recovered_segments == 2
    handle.shut()
    assert {base: (path / f"{base:020d}.{missing}").read_bytes() for base in before} == before


def test_load_rebuilds_a_wrong_index_of_the_last_segment(tmp_path: Path) -> None:
    path = made(tmp_path)
    index = path / f"{15:020d}.index"
    good = index.read_bytes()
    index.write_bytes(good[:-8] + b"\x00\x00\x00\x01\x7f\xff\xff\xff")
    handle = loaded(tmp_path)
    assert handle.end_offset == 20
    handle.shut()
    assert index.read_bytes() == good


def test_load_does_not_read_the_index_of_a_short_segment(tmp_path: Path) -> None:
    """Such segments are common: a node can have tens of thousands of them."""
    builder = RecordBatchBuilder()
    builder.append(timestamp=1_700_000_000_000, key=None, value=b"v" * 50)
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0, Uuid.random(), SETTINGS)
    handle.become_leader(1, 0)
    handle.append(builder.build())
    handle.shut()
    index = tmp_path / "t-0" / f"{0:020d}.index"
    index.unlink()
    index.symlink_to(index)  # a symbolic link to itself, which cannot be opened
    assert loaded(tmp_path).end_offset == 1
    index.unlink()
    index.touch()
    again = loaded(tmp_path)
    again.become_leader(1, 1)
    for _ in range(10):
        again.append(batch())
    again.shut()
    assert len(index.read_bytes()) > 2 * 8
    assert loaded(tmp_path).end_offset == 11


@pytest.mark.parametrize("size_bytes", [511, 512, 513, 600])
def test_leader_epochs_are_read_from_a_file_of_any_size(tmp_path: Path, size_bytes: int) -> None:
    path = made(tmp_path, batches=120) / "leader-epoch-checkpoint"
    count, lacking = divmod(size_bytes - len("0\n99\n") - 10 * len("100 0\n"), len("110 10\n"))
    epochs = [(100 + at, at) for at in range(10 + count)]
    epochs[-1] = (epochs[-1][0] * 10**lacking, epochs[-1][1])
    path.write_text(f"0\n{len(epochs)}\n" + "".join(f"{epoch} {at}\n" for epoch, at in epochs))
    assert path.stat().st_size == size_bytes
    assert loaded(tmp_path).leader_epochs() == epochs


@pytest.mark.parametrize("text", ["", "0", "0\n"])
def test_leader_epochs_are_ignored_when_their_file_has_no_count(tmp_path: Path, text: str) -> None:
    (made(tmp_path) / "leader-epoch-checkpoint").write_text(text)
    assert loaded(tmp_path).leader_epochs() == []


def test_recovery_truncates_the_log_at_a_corrupt_batch(tmp_path: Path) -> None:
    path = made(tmp_path)
    log = path / f"{5:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    handle = loaded(tmp_path, clean=False)
    assert [part.base_offset for part in handle.segments()] == [0, 5]
    assert handle.end_offset == 9
    assert sorted(file.name[:20] for file in path.glob("*.log")) == [f"{base:020d}" for base in (0, 5)]


@pytest.mark.parametrize(("clean", "recovery_point"), [(True, 0), (False, 15)])
def test_damage_below_the_recovery_point_drops_no_other_record(
    tmp_path: Path, clean: bool, recovery_point: int
) -> None:
    path = made(tmp_path)
    log = path / f"{5:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    (path / f"{5:020d}.index").unlink()
    handle = loaded(tmp_path, clean=clean, recovery_point=recovery_point)
    assert [part.base_offset for part in handle.segments()] == [0, 5, 10, 15]
    assert [handle.read(offset, 1, READ_LOCAL).first_offset for offset in (8, 9, 19)] == [8, 10, 19]
    assert handle.end_offset == 20


@pytest.mark.parametrize(("clean", "recovery_point"), [(True, 0), (False, 15), (False, 0)])
def test_load_keeps_gaps_of_a_topic_that_is_no_longer_compacted(
    tmp_path: Path, clean: bool, recovery_point: int
) -> None:
    path = made(tmp_path)
    log = path / f"{5:020d}.log"
    size = log.stat().st_size // 5
    data = log.read_bytes()
    log.write_bytes(data[: 2 * size] + data[3 * size :])  # removes the record at offset 7
    (path / f"{5:020d}.index").unlink()
    handle = loaded(tmp_path, clean=clean, recovery_point=recovery_point)
    assert handle.end_offset == 20
    assert [handle.read(offset, 1, READ_LOCAL).first_offset for offset in (6, 7, 19)] == [6, 8, 19]


def followed(root: Path, offsets: Iterable[int]) -> list[int]:
    """Makes a follower's log with one record at each offset. Returns the base offsets of its segments."""
    handle = PartitionHandle(LogDirectory(Environment(), str(root)), "t", 0, Uuid.random(), SETTINGS)
    handle.become_follower(2, 1, 1)
    for offset in offsets:
        copied = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=1)
        copied.append(timestamp=1_700_000_000_000, key=None, value=b"v" * 300)
        assert handle.append_as_follower(copied.build(), 1).error == 0
    handle.shut()
    return [segment.base_offset for segment in handle.segments()]


@pytest.mark.parametrize("kept", [[0, 1, 5, 6], [0, 1, 7], [0, 1, 2, 3, 4, 9, 10, 20, 21, 22, 23]])
@pytest.mark.parametrize("recovery_point", [0, 3, 30])
def test_load_keeps_gaps_that_a_follower_copied_from_its_leader(
    tmp_path: Path, kept: list[int], recovery_point: int
) -> None:
    followed(tmp_path, kept)
    handle = loaded(tmp_path, clean=False, recovery_point=min(recovery_point, kept[-1] + 1))
    assert handle.end_offset == kept[-1] + 1
    assert [handle.read(offset, 1, READ_LOCAL).first_offset for offset in kept] == kept


def test_segment_of_a_follower_begins_where_the_previous_one_ended_when_a_gap_is_between_their_records(
    tmp_path: Path,
) -> None:
    """Otherwise, a load would treat the gap as a lost end of the previous segment."""
    assert followed(tmp_path, [0, 1, 2, 3, 4, 9, 10]) == [0, 5]


def test_recovery_truncates_the_log_at_a_batch_when_its_base_offset_is_damaged(tmp_path: Path) -> None:
    """No checksum covers the base offset, but the lower base offset of the next batch shows the damage."""
    path = made(tmp_path, 5)
    log = path / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    size = len(data) // 5
    data[2 * size + 6] = 1  # offset 258 instead of 2
    log.write_bytes(data)
    assert loaded(tmp_path, clean=False).end_offset == 2


@pytest.mark.parametrize("gaps_until", [0, 1000])
def test_recovery_truncates_the_log_at_a_batch_that_ends_before_it_begins(tmp_path: Path, gaps_until: int) -> None:
    """The checksum covers the last offset delta, so only a broken node writes such a batch."""
    path = made(tmp_path, 2)
    data = bytearray(batch())
    struct.pack_into(">q", data, 0, 9)
    struct.pack_into(">i", data, 23, -1)
    with (path / f"{0:020d}.log").open("ab") as log:
        log.write(resealed(data))
    assert loaded(tmp_path, clean=False, gaps_until=gaps_until).end_offset == 2


def test_load_does_not_check_batches_below_the_recovery_point(tmp_path: Path) -> None:
    made(tmp_path)
    progress = LoadProgress()
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0, None, SETTINGS)
    report = log_loader.load(handle, str(tmp_path / "t-0"), clean=False, recovery_point=12, progress=progress)
    assert report.recovered_segments == 2
    assert handle.synced_offset == 12
    assert handle.end_offset == 20


def test_log_loads_when_it_is_cut_at_any_byte(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    path = made(tmp_path / "made", batches=3)
    log = (path / f"{0:020d}.log").read_bytes()
    one = len(log) // 3
    for size in range(0, len(log) + 1, 13):
        root = tmp_path / f"cut-{size}"
        shutil.copytree(tmp_path / "made", root)
        (root / "t-0" / f"{0:020d}.log").write_bytes(log[:size])
        assert loaded(root, clean=False).end_offset == size // one


def test_log_restarts_at_its_start_offset_when_that_lies_beyond_its_end(tmp_path: Path) -> None:
    path = made(tmp_path)
    handle = loaded(tmp_path, log_start_offset=50)
    assert (handle.log_start_offset, handle.end_offset, handle.segments()) == (50, 50, [])
    handle.become_leader(1, 1)
    assert handle.append(batch()).first_offset == 50
    assert [file.name for file in path.glob("*.log")] == [f"{50:020d}.log"]


def test_load_reports_a_malformed_epoch_checkpoint(tmp_path: Path) -> None:
    path = made(tmp_path)
    (path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n")
    with pytest.raises(MalformedFileError, match=r"t-0/leader-epoch-checkpoint: is malformed; .*remove it"):
        loaded(tmp_path)


def test_load_reports_an_offset_that_no_index_entry_can_hold_and_keeps_the_log(tmp_path: Path) -> None:
    path = made(tmp_path, batches=1)
    log = path / f"{0:020d}.log"
    far = batch()
    log.write_bytes(log.read_bytes() + (1 << 33).to_bytes(8, "big") + far[8:])
    before = log.read_bytes()
    with pytest.raises(MalformedFileError, match="KAFKA-6264"):
        loaded(tmp_path, clean=False, gaps_until=1 << 40)
    assert log.read_bytes() == before


def test_topic_configuration_sets_the_settings_of_its_logs(tmp_path: Path) -> None:
    broker = BrokerConfig(NODE | {"log.segment.delete.delay.ms": "77"})
    settings = log_settings(TopicConfig(broker, {"flush.ms": "5", "compression.type": "zstd"}))
    assert (settings.flush_ms, settings.file_delete_delay_ms) == (5, 77)
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0, None, settings)
    handle.become_leader(1, 0)
    assert handle.append(batch()).error == 0
    assert handle.read(0).records[22] & 7 == 4


def test_abort_marker_adds_to_the_transaction_index(tmp_path: Path) -> None:
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0, Uuid.random(), SETTINGS)
    handle.become_leader(1, 0)
    assert handle.append(records(0, 7), origin="coordinator").error == 0
    assert handle.append(marker(0, 7, ABORT), origin="coordinator").error == 0
    assert handle.read(0, isolation=READ_COMMITTED).aborted == [(7, 0)]
    handle.shut()
    assert loaded(tmp_path).read(0, isolation=READ_LOCAL).error == 0
    assert (tmp_path / "t-0" / f"{0:020d}.txnindex").stat().st_size == ABORTED_ENTRY_BYTES


def test_deletion_of_a_segment_removes_its_transaction_index_when_that_cannot_be_opened(tmp_path: Path) -> None:
    disk, begun, aborted = FaultDisk(), records(0, 7), marker(0, 7, ABORT)
    settings = LogSettings(segment_bytes=len(begun) + len(aborted), retention_bytes=0)
    handle = PartitionHandle(LogDirectory(disk.environment(), str(tmp_path)), "t", 0, Uuid.random(), settings)
    handle.become_leader(1, 0)
    for one in (begun, aborted, records(0, 7, sequence=2)):
        assert handle.append(one, origin="coordinator").error == 0
    disk.fail("read", errno.EMFILE)
    assert handle.delete_old_segments() == 1
    disk.fail("read", 0)
    assert not list((tmp_path / "t-0").glob(f"{0:020d}.*"))
    handle.shut()


def test_segment_keeps_its_transaction_index_when_it_is_not_recovered(tmp_path: Path) -> None:
    """The first segment has lost its indexes. The later segments were shut down cleanly."""
    write_aborted_log(Environment(), tmp_path)
    path = tmp_path / "t-0"
    before = {name.name: name.read_bytes() for name in path.glob("*.txnindex")}
    assert [len(entries) for entries in before.values()] == [ABORTED_ENTRY_BYTES] * 2
    (path / f"{0:020d}.index").unlink()
    again = loaded(tmp_path)
    again.become_leader(1, 1)
    assert {name.name: name.read_bytes() for name in path.glob("*.txnindex")} == before
    assert again.read(3, isolation=READ_COMMITTED).aborted == [(7, 3)]
    assert again.last_stable_offset == 6


def test_aborted_records_stay_aborted_when_the_log_rolled_at_the_recovery_point_before_a_power_cut(
    tmp_path: Path,
) -> None:
    """The recovery point was written while the first segment was active. A roll syncs the transaction index later."""
    write_aborted_log(Environment(), tmp_path)
    (tmp_path / "t-0" / f"{0:020d}.txnindex").write_bytes(b"")
    again = loaded(tmp_path, clean=False, recovery_point=3)
    again.become_leader(1, 1)
    assert again.read(0, isolation=READ_COMMITTED).aborted == [(7, 0)]


def test_recovery_point_stays_before_a_rebuilt_segment_until_it_is_synced(tmp_path: Path) -> None:
    path = made(tmp_path)
    (path / f"{5:020d}.index").unlink()
    handle = loaded(tmp_path)
    assert (handle.synced_offset, handle.recovery_point) == (20, 5)
    handle.become_leader(1, 1)
    assert handle.append(batch()).error == 0
    handle.flush()
    assert (handle.synced_offset, handle.recovery_point) == (21, 21)
    handle.shut()


def test_epochs_of_an_idle_log_are_written_with_its_next_record(tmp_path: Path) -> None:
    file = made(tmp_path) / "leader-epoch-checkpoint"
    before = file.read_text(), file.stat().st_ino
    for epoch in (3, 4):
        handle = loaded(tmp_path)
        handle.become_leader(1, epoch)
        assert handle.leader_epochs() == [(0, 0), (epoch, 20)]
        handle.shut()
        assert (file.read_text(), file.stat().st_ino) == before, "a rewrite costs two syncs at each start"
    handle = loaded(tmp_path)
    handle.become_leader(1, 7)
    assert handle.append(batch()).error == 0
    wait_until(lambda: file.read_text() == "0\n2\n0 0\n7 20\n", 10, "the epoch in its file, while the log is in use")
    assert loaded(tmp_path, clean=False).leader_epochs() == [(0, 0), (7, 20)]
    handle.shut()


def test_recovered_epochs_are_written_at_once(tmp_path: Path) -> None:
    file = made(tmp_path) / "leader-epoch-checkpoint"
    file.write_text("0\n0\n")
    handle = loaded(tmp_path, clean=False)
    wait_until(lambda: file.read_text() == "0\n1\n0 0\n", 10, "the epochs of the batches in their file")
    assert handle.leader_epochs() == [(0, 0)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("before", "whole"),
    [(1, [(0, 0), (2, 2), (3, 4)]), (3, [(0, 0), (2, 2), (3, 4)]), (7, [(3, 5)]), (8, [(3, 5)])],
)
def test_deleted_records_have_their_epochs_when_a_crash_brings_them_back(
    tmp_path: Path, before: int, whole: list[tuple[int, int]], *, clean: bool
) -> None:
    """The epochs of deleted records leave the file at once, but the log start offset is checkpointed later."""
    file = tmp_path / "t-0" / "leader-epoch-checkpoint"

    def in_file(epochs: list[tuple[int, int]]) -> bool:
        return file.read_text() == f"0\n{len(epochs)}\n" + "".join(f"{epoch} {at}\n" for epoch, at in epochs)

    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0, Uuid.random(), SETTINGS)
    for epoch, batches in ((0, 2), (2, 2), (3, 4)):
        handle.become_leader(1, epoch)
        for _ in range(batches):
            assert handle.append(batch()).error == 0
    assert handle.drop_below(before) == 0
    wait_until(lambda: in_file(handle.leader_epochs()), 10, "the remaining epochs in the file")
    handle.shut()
    again = loaded(tmp_path, clean=clean)
    assert (again.log_start_offset, again.leader_epochs()) == (whole[0][1], whole)
    wait_until(lambda: in_file(whole), 10, "the epochs of all records in the file")


def test_epochs_file_stays_when_the_first_records_have_no_epoch(tmp_path: Path) -> None:
    """Such logs come from Apache Kafka: records of message formats 0 and 1 have no epochs."""
    path = made(tmp_path)
    first = path / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[EPOCH_AT : EPOCH_AT + 4] = b"\xff" * 4  # no checksum covers the epoch
    first.write_bytes(data)
    file = path / "leader-epoch-checkpoint"
    file.write_text("0\n1\n0 5\n")
    before = file.stat().st_ino
    handle = loaded(tmp_path)
    assert handle.leader_epochs() == [(0, 5)]
    handle.shut()
    assert (file.read_text(), file.stat().st_ino) == ("0\n1\n0 5\n", before)
