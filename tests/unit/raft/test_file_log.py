"""The metadata log on disk. Batches, epochs and snapshots are read back unchanged."""

from __future__ import annotations

import errno
import select
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from descriptors import no_free_descriptor
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import control, snapshots
from kafkacore.raft.control import data_batch
from kafkacore.raft.file_log import FileLog, MetadataLogError
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from kafkacore.runtime import open_files
from kafkacore.runtime.files import OsFiles
from kafkacore.storage.errors import MalformedFileError
from metadata_files import append

EPOCH_AT = 12  # the position of the leader epoch in a batch


class Place:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = LogDirectory(Environment(), str(path))

    def open(self, **values: object) -> FileLog:
        return FileLog(self.directory, **values)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.directory.close()


def fill(log: object) -> None:
    for epoch, values in ((1, 3), (1, 1), (2, 2), (5, 4)):
        data = data_batch([b"v%d" % n for n in range(values)], log.end_offset, epoch, 1000 + epoch)
        append(log, data)


def test_file_log_behaves_like_the_memory_log(place: Place) -> None:
    memory, disk = MemoryLog(), place.open()
    assert (disk.start_offset, disk.end_offset, disk.last_epoch) == (0, 0, 0)
    fill(memory)
    fill(disk)
    for log_end in (10, 6, 4):
        memory.truncate(log_end)
        disk.truncate(log_end)
        assert disk.end_offset == memory.end_offset == log_end
        assert disk.last_epoch == memory.last_epoch
        assert [disk.end_offset_for_epoch(e) for e in range(7)] == [memory.end_offset_for_epoch(e) for e in range(7)]
        assert disk.read(0, 1 << 20) == memory.read(0, 1 << 20)
        assert disk.read(3, 1) == memory.read(3, 1)
    disk.close()


def test_file_log_comes_back_after_a_restart(place: Place) -> None:
    log = place.open()
    fill(log)
    whole = log.read(0, 1 << 20)
    log.flush()
    log.close()
    again = place.open()
    assert (again.end_offset, again.last_epoch) == (10, 5)
    assert again.read(0, 1 << 20) == whole
    assert again.end_offset_for_epoch(3) == OffsetAndEpoch(6, 2)
    again.close()


def test_control_batches_are_stored_unchanged(place: Place) -> None:
    log = place.open()
    change = control.leader_change(1, [ReplicaKey(1)], [ReplicaKey(1)])
    append(log, control.control_batch([change], 0, 1, 5))
    assert [record for _, record in control.control_records(log.read(0, 1000))] == [change]
    log.close()


def voter_history() -> VoterHistory:
    history = VoterHistory(VoterSet())
    history.set_version(-1, 1)
    history.set_voters(-1, VoterSet([Voter(ReplicaKey(1, Uuid(b"d" * 16)), (("CONTROLLER", "h", 1),))]))
    return history


@pytest.mark.parametrize("count", [0, 1, 2500])
def test_snapshot_is_written_in_parts_and_read_back(place: Place, count: int) -> None:
    log = place.open()
    fill(log)
    snapshot = OffsetAndEpoch(10, 5)
    values = [b"value %d" % n for n in range(count)]
    position = 0
    for part in snapshots.snapshot_parts(snapshot, iter(values), voter_history(), 777, 888):
        log.write_snapshot(snapshot, position, part)
        position += len(part)
    assert log.snapshots() == []
    log.finish_snapshot(snapshot)
    assert log.snapshots() == [snapshot]
    assert [record.value for batch in snapshots.read_batches(log, snapshot) for record in batch] == values
    assert snapshots.read_timestamp(log, snapshot) == 777
    assert (
        place.path / "__cluster_metadata-0" / "00000000000000000010-0000000005.checkpoint"
    ).stat().st_size == position
    learned = VoterHistory(VoterSet())
    control.learn_voters(learned, log.read_snapshot(snapshot, 0, position), 9)
    assert learned.latest == voter_history().latest and learned.kraft_version == 1
    log.close()
    assert place.open().snapshots() == [snapshot]


def test_snapshot_keeps_every_record_when_the_records_exceed_a_batch(place: Place) -> None:
    log = place.open()
    snapshot = OffsetAndEpoch(10, 5)
    values = [bytes([n % 256]) * (32_700 if n % 25 == 0 else 60) for n in range(1500)]
    values[700] = b"large" * 300_000
    position = 0
    for part in snapshots.snapshot_parts(snapshot, iter(values), voter_history(), 777, 888):
        log.write_snapshot(snapshot, position, part)
        position += len(part)
    log.finish_snapshot(snapshot)
    records = [record for batch in snapshots.read_batches(log, snapshot) for record in batch]
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == [*range(3, 1503)], "three control records are before the values"
    log.close()


def test_log_stays_unchanged_when_a_batch_without_offsets_is_appended(place: Place) -> None:
    log = place.open()
    fill(log)
    before = log.read(0, 1 << 20)
    empty = RecordBatchBuilder(base_offset=log.end_offset, partition_leader_epoch=5, control=True).build()
    with pytest.raises(MetadataLogError, match="refused an empty batch at offset 10"):
        log.append(empty)
    assert (log.end_offset, log.read(0, 1 << 20)) == (10, before)
    log.close()


def test_damaged_or_cut_off_snapshot_is_not_read(place: Place) -> None:
    log = place.open()
    snapshot = OffsetAndEpoch(10, 5)
    whole = b"".join(snapshots.snapshot_parts(snapshot, iter([b"a", b"b"]), VoterHistory(VoterSet()), 1, 2))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for data in (whole[:-5], bytes(flipped), whole[: whole.rindex(b"b")]):
        log.write_snapshot(snapshot, 0, data)
        log.finish_snapshot(snapshot)
        with pytest.raises(snapshots.SnapshotError):
            list(snapshots.read_batches(log, snapshot))
    log.close()


def test_received_snapshot_replaces_the_log(place: Place) -> None:
    log = place.open()
    fill(log)
    snapshot = OffsetAndEpoch(100, 7)
    for part in [b"".join(snapshots.snapshot_parts(snapshot, iter([b"x"]), VoterHistory(VoterSet()), 1, 2))]:
        log.write_snapshot(snapshot, 0, part)
    log.finish_snapshot(snapshot)
    log.begin_at_snapshot(snapshot)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (100, 100, 7)
    append(log, data_batch([b"next"], 100, 8, 1))
    assert (log.end_offset, log.last_epoch) == (101, 8)
    log.close()
    again = place.open()
    assert (again.start_offset, again.end_offset, again.last_epoch) == (100, 101, 8)
    again.close()


def test_start_removes_incomplete_files_of_a_crash(place: Place) -> None:
    log = place.open()
    log.write_snapshot(OffsetAndEpoch(10, 5), 0, b"half")
    log.close()
    part = place.path / "__cluster_metadata-0" / "00000000000000000010-0000000005.checkpoint.part"
    assert part.exists()
    place.open().close()
    assert not part.exists()


def test_trim_removes_records_below_a_snapshot(place: Place) -> None:
    log = place.open(segment_bytes=1024)
    for _ in range(60):
        append(log, data_batch([b"x" * 100], log.end_offset, 1, 1))
    log.flush()
    before = log.size_bytes
    log.trim(50)
    assert log.start_offset == 50 and log.size_bytes < before
    assert log.read(50, 1 << 20)
    log.close()


@pytest.mark.parametrize(("start", "epochs"), [(6, "1\n5 6\n"), (10, "1\n5 10\n")], ids=["of-a-part", "up-to-the-end"])
def test_trimmed_records_stay_away_after_a_restart_when_their_segment_is_kept(
    place: Place, start: int, epochs: str
) -> None:
    log = place.open()
    fill(log)
    snapshot_id = OffsetAndEpoch(start, 2)
    log.write_snapshot(snapshot_id, 0, b"contents")
    log.finish_snapshot(snapshot_id)
    log.trim(start)
    log.close()
    # Writes the epochs as the next change of the log does: without those below the log start.
    (place.path / "__cluster_metadata-0" / "leader-epoch-checkpoint").write_text(f"0\n{epochs}")
    again = place.open()
    assert (again.start_offset, again.end_offset) == (start, 10)
    # If a leader answered (0, 0) here, its followers would treat their committed records as diverging.
    assert again.end_offset_for_epoch(1) == snapshot_id
    again.close()


def synced(log: FileLog) -> None:
    """Begins a sync with `begin_sync`, and waits for its end as an event loop does."""
    bell = log.begin_sync()
    while bell is not None:
        assert select.select([bell], [], [], 20)[0], "the end of the sync was not signalled"
        if log.end_sync():
            return


def test_descriptor_is_readable_when_a_sync_ends(place: Place) -> None:
    log = place.open()
    fill(log)
    synced(log)
    assert log.begin_sync() is None, "there must be nothing left to sync"
    log.close()


def test_sync_of_truncated_records_is_replaced_by_the_next(place: Place) -> None:
    log = place.open()
    fill(log)
    log.begin_sync()
    log.truncate(4)
    synced(log)
    fill(log)
    synced(log)
    log.close()


def test_trim_does_not_disturb_a_sync(place: Place) -> None:
    log = place.open(segment_bytes=1024)
    for _ in range(60):
        append(log, data_batch([b"x" * 100], log.end_offset, 1, 1))
    bell = log.begin_sync()
    assert bell is not None
    log.trim(30)
    while not log.end_sync():
        assert select.select([bell], [], [], 20)[0], "the end of the sync was not signalled"
    log.close()


def test_sync_raises_when_the_directory_failed(place: Place) -> None:
    log = place.open()
    fill(log)
    place.directory.fail(errno.EIO)
    with pytest.raises(OSError, match="has failed: Input/output error"):
        synced(log)
    with pytest.raises(OSError, match="has failed: Input/output error"):
        log.flush()
    log.close()


class NotingFiles(OsFiles):
    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def test_directory_of_a_killed_process_is_synced_by_the_next_start(place: Place) -> None:
    place.open().close()
    files = NotingFiles()
    place.open(files=files).close()
    assert place.directory.path in files.synced


LAST_EPOCH = (1 << 31) - 1


def test_last_epoch_in_the_log_is_refused_with_file_and_offset(place: Place) -> None:
    log = place.open()
    fill(log)
    log.close()
    segment = place.path / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    batches, last = Batches(data), 0
    for batch in batches:
        if batch.base_offset == 6:
            data[last + EPOCH_AT : last + EPOCH_AT + 4] = LAST_EPOCH.to_bytes(4, "big")
        last = batches.position
    segment.write_bytes(data)
    with pytest.raises(MalformedFileError, match=rf"{segment.name}: has at offset 6 the leader epoch {LAST_EPOCH}"):
        place.open()


def test_last_epoch_in_the_checkpoint_alone_is_refused(place: Place) -> None:
    log = place.open()
    fill(log)
    log.close()
    checkpoint = place.path / "__cluster_metadata-0" / "leader-epoch-checkpoint"
    assert checkpoint.read_text() == "0\n3\n1 0\n2 4\n5 6\n"
    checkpoint.write_text(f"0\n3\n1 0\n2 4\n{LAST_EPOCH} 8\n")
    with pytest.raises(MalformedFileError, match=rf"leader-epoch-checkpoint: has at offset 8 the .* {LAST_EPOCH}"):
        place.open()


def test_batch_larger_than_a_segment_is_refused_with_the_key_to_raise(place: Place) -> None:
    log = place.open(segment_bytes=200)
    with pytest.raises(
        MetadataLogError, match=r"\d+ bytes .* segment of 200: raise internal.metadata.log.segment.bytes"
    ):
        append(log, data_batch([b"v" * 200], 0, 1, 1000))
    assert log.end_offset == 0
    log.close()


def test_append_waits_for_no_disk_when_a_segment_begins() -> None:
    disk = SimulatedDisk()
    directory = LogDirectory(disk.environment(), "/slow")
    log = FileLog(directory, segment_bytes=300, files=disk)
    fill(log)
    log.flush()
    before, epochs = log.end_offset, log.epochs.entries()
    data = data_batch([b"x" * 200], before, 6, 1006)
    assert not log.append(data), "the log must refuse the append until a segment has begun"
    assert (log.end_offset, log.last_epoch, log.epochs.entries()) == (before, 5, epochs)
    log.begin_segment()
    assert log.append(data)
    assert log.read(before, 1 << 20) == log.read_recent(before, 1 << 20) == data
    log.close()
    directory.close()


# --- no free file descriptor ---


class ShortOfFiles:
    """A log in several segments. After `run_out`, no file descriptor is free until the log has begun its wait with the
    number `waits`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = SimulatedDisk()
        self.directory = LogDirectory(self.disk.environment(), "/data")
        self.log = FileLog(self.directory, segment_bytes=300, files=self.disk)
        for _ in range(3):
            append(self.log, data_batch([b"x" * 200], self.log.end_offset, 1, 1))
        self.log.flush()
        self.waits, self._free_at = 0, 0
        self._sleep = time.sleep
        monkeypatch.setattr(time, "sleep", self._wait)

    def run_out(self, kind: str, error: int, waits: int) -> None:
        self._free_at = waits
        self.disk.fail(kind, error)

    def _wait(self, seconds: float) -> None:
        self.waits += 1
        if self.waits == self._free_at:
            for kind in ("names", "read"):
                self.disk.fail(kind, 0)
        self._sleep(seconds)

    def close(self) -> None:
        assert self.directory.offline_errno == 0
        self.log.close()
        self.directory.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_append_waits_for_a_file_descriptor_when_a_segment_begins(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    short = ShortOfFiles(monkeypatch)
    short.run_out("names", error, waits=8)  # these waits outlast the refusal of appends after one attempt
    append(short.log, data_batch([b"y" * 200], 3, 1, 1))
    assert short.log.end_offset == 4 and short.waits >= 8
    short.close()


def test_append_waits_when_no_file_of_the_full_segment_can_be_opened(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full segment gets its last index entries before the new segment begins."""
    log = place.open(segment_bytes=300)
    append(log, data_batch([b"x" * 200], 0, 1, 1))
    waits, sleep = [], time.sleep
    with no_free_descriptor() as end:

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 8:  # these waits outlast the refusal of appends after one attempt
                end()
            sleep(seconds)

        monkeypatch.setattr(time, "sleep", wait)
        append(log, data_batch([b"y" * 200], 1, 1, 1))
    assert (len(waits) >= 8, log.end_offset, place.directory.offline_errno) == (True, 2, 0)
    assert log.read(1, 1) == log.read_recent(1, 1)
    log.close()


def test_append_fails_when_no_file_descriptor_becomes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "WAIT_ROUNDS", 10)
    short = ShortOfFiles(monkeypatch)
    short.run_out("names", errno.EMFILE, waits=11)
    with pytest.raises(MetadataLogError, match="KAFKA_STORAGE_ERROR"):
        append(short.log, data_batch([b"y" * 200], 3, 1, 1))
    assert short.waits == 10 and short.log.end_offset == 3
    short.close()


def test_truncation_waits_for_a_file_descriptor(place: Place) -> None:
    log = place.open()
    fill(log)
    with no_free_descriptor() as end, ThreadPoolExecutor(1) as pool:
        log.flush()
        change = pool.submit(log.truncate, 6)
        with pytest.raises(TimeoutError):
            change.result(0.1)
        end()
        change.result(30)
    assert (log.end_offset, place.directory.offline_errno) == (6, 0)
    fill(log)
    log.close()


def test_read_waits_for_a_file_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    short = ShortOfFiles(monkeypatch)
    short.run_out("read", errno.EMFILE, waits=2)
    assert next(iter(Batches(short.log.read(0, 1)))).base_offset == 0 and short.waits == 2
    short.close()


class NoDescriptor(OsFiles):
    """Files whose operations find no free descriptor at their first attempt."""

    def __init__(self) -> None:
        self.refused: list[str] = []


def _at_the_second_attempt(name: str) -> Any:
    def operation(self: NoDescriptor, *arguments: Any) -> Any:
        self.refused.append(name)
        if self.refused.count(name) % 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return getattr(OsFiles, name)(self, *arguments)

    return operation


def test_snapshot_waits_for_file_descriptors(place: Place) -> None:
    files = NoDescriptor()
    log = place.open(files=files)
    fill(log)
    log.note_committed(10)
    for name in ("read_part", "write_part", "sync", "sync_directory"):
        setattr(NoDescriptor, name, _at_the_second_attempt(name))
    snapshot = OffsetAndEpoch(100, 7)
    log.write_snapshot(snapshot, 0, b"contents")
    log.finish_snapshot(snapshot)
    assert log.read_snapshot(snapshot, 0, 8) == b"contents"
    log.begin_at_snapshot(snapshot)
    assert (log.snapshots(), log.end_offset, log.committed_offset) == ([snapshot], 100, 0)
    assert files.refused == [
        *["write_part"] * 2, *["sync"] * 2, *["sync_directory"] * 2, *["read_part"] * 2, *["sync_directory"] * 2
    ]  # fmt: skip
    log.close()


# --- damage to committed records ---

SEGMENT = f"{0:020d}.log"


def stored(place: Place, committed: int, **values: object) -> Path:
    """Makes a log of ten records in four batches, which begin at 0, 3, 4 and 6. The records below `committed` are
    committed. Returns the log's directory."""
    log = place.open(**values)
    fill(log)
    log.flush()
    log.note_committed(committed)
    log.close()
    return place.path / "__cluster_metadata-0"


def ends_of_batches(path: Path) -> list[int]:
    batches = Batches(path.read_bytes())
    return [batches.position for _ in batches]


def refusal(place: Place, **values: object) -> str:
    with pytest.raises(MalformedFileError) as refused:
        place.open(**values)
    return str(refused.value)


def test_damage_below_the_mark_is_refused_with_file_byte_and_offset(place: Place) -> None:
    path = stored(place, 10) / SEGMENT
    ends = ends_of_batches(path)
    data = bytearray(path.read_bytes())
    data[ends[0] + 64] ^= 1
    path.write_bytes(data)
    told = refusal(place)
    assert (
        f"{path}: byte {ends[0]}: no whole batch begins at offset 3, but all records below offset 10 were committed"
        in told
    )
    assert f"remove {path.parent}" in told and "remove replication-offset-checkpoint" in told
    assert path.read_bytes() == data, "the node must not truncate the file"
    (path.parent / "replication-offset-checkpoint").unlink()
    log = place.open()
    assert log.end_offset == 3
    log.close()


def test_damage_above_the_mark_is_cut_off_with_a_line(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(place, 6) / SEGMENT
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = place.open()
    assert log.end_offset == 6
    assert "bytes that belong to no whole batch were cut off" in caplog.text
    log.close()


def test_log_that_ends_below_the_mark_between_two_batches_is_refused(place: Place) -> None:
    path = stored(place, 10) / SEGMENT
    whole = path.read_bytes()
    path.write_bytes(whole[: ends_of_batches(path)[2]])
    assert f"{path}: the log ends at offset 6, but all records below offset 10 were committed" in refusal(place)
    path.write_bytes(whole)
    place.open().close()


def bells() -> int:
    """Returns the number of this process's eventfds."""
    open_files = Path("/proc/self/fd")
    return sum("eventfd" in str(each.readlink()) for each in open_files.iterdir() if each.is_symlink())


def test_log_that_is_refused_keeps_no_watch_open(place: Place) -> None:
    path = stored(place, 10) / SEGMENT
    path.write_bytes(path.read_bytes()[: ends_of_batches(path)[2]])
    before = bells()
    with pytest.raises(MalformedFileError) as refused:
        place.open()
    assert bells() == before, f"an eventfd is still open; the test still refers to {refused}"


def test_log_without_its_segments_is_refused_when_it_was_committed(place: Place) -> None:
    directory = stored(place, 4)
    for name in (".log", ".index", ".timeindex"):
        (directory / f"{0:020d}{name}").unlink()
    assert f"{directory}: the log ends at offset 0, but all records below offset 4 were committed" in refusal(place)


@pytest.mark.parametrize(("lost", "expected"), [
    (0, "begins at offset 3, and no snapshot has the records from offset 0 on"),
    (3, "no whole batch begins at offset 3, but all records below offset 10 were committed"),
    (6, "the log ends at offset 6, but all records below offset 10 were committed"),
])  # fmt: skip
def test_lost_segment_is_refused(place: Place, lost: int, expected: str) -> None:
    values = {"segment_bytes": 120}
    directory = stored(place, 10, **values)
    assert sorted(each.name for each in directory.glob("*.log")) == [f"{base:020d}.log" for base in (0, 3, 4, 6)]
    (directory / f"{lost:020d}.log").unlink()
    kept = {each: each.read_bytes() for each in directory.glob("*.log")}
    assert expected in refusal(place, **values)
    assert {each: each.read_bytes() for each in directory.glob("*.log")} == kept


def test_malformed_mark_is_ignored_with_a_line(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(place, 10) / SEGMENT
    (path.parent / "replication-offset-checkpoint").write_bytes(b"0\n1\n__cluster")
    path.write_bytes(path.read_bytes()[:-1])
    log = place.open()
    assert log.end_offset == 6
    assert "the mark of committed records cannot be read and is ignored" in caplog.text
    log.close()


def test_received_snapshot_takes_the_mark_away(place: Place) -> None:
    stored(place, 10)
    log = place.open()
    assert log.committed_offset == 10
    snapshot = OffsetAndEpoch(100, 7)
    log.write_snapshot(snapshot, 0, b"contents")
    log.finish_snapshot(snapshot)
    log.begin_at_snapshot(snapshot)
    assert log.committed_offset == 0
    log.close()
    again = place.open()
    assert (again.end_offset, again.committed_offset) == (100, 0)
    again.close()
