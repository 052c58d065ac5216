"""The log manager: loading, checkpoints, deletion, the mark of a clean shutdown, and a directory that fails."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from descriptors import no_free_descriptor
from kafkacore._fast.base.made_ids import made_id
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.runtime.files import OsFiles
from kafkacore.storage import checkpoints, clean_shutdown, names
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.log_manager import LogManager
from processes import wait_until

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=256, file_delete_delay_ms=60_000, flush_ms=5_000)


def manager_of(*paths: Path, clock: ManualClock | None = None, **options: object) -> LogManager:
    environment = Environment(clock)
    manager = LogManager(environment, [str(path) for path in paths], lambda topic: SETTINGS, **options)
    manager.load()
    return manager


def batch(count: int = 3, timestamp: int = 1_700_000_000_000) -> bytes:
    builder = RecordBatchBuilder()
    for i in range(count):
        builder.append(timestamp=timestamp + i, key=b"k", value=b"v" * 100)
    return builder.build()


def filled(manager: LogManager, topic: str = "orders", batches: int = 30) -> Uuid:
    topic_id = Uuid.random()
    for handle in manager.create(topic, topic_id, range(2)):
        handle.become_leader(1, 5)
        for _ in range(batches):
            assert handle.append(batch()).error == 0
    return topic_id


def write_checkpoints(manager: LogManager) -> None:
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_starts()
    manager.checkpoint_high_watermarks()


def read_checkpoints(path: Path) -> dict[str, dict[tuple[str, int], int]]:
    return {name: checkpoints.OffsetCheckpoint(str(path), name).read() for name in checkpoints.OFFSETS}


def test_log_opens_no_file_before_its_first_append(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    (handle,) = manager.create("orders", Uuid.random(), [0])
    handle.become_leader(1, 0)
    assert (handle.read(0).error, handle.end_offset, handle.epoch_end(0)) == (0, 0, (0, 0))
    assert os.listdir(tmp_path) == []
    handle.append(batch())
    assert os.listdir(tmp_path) == ["orders-0"]
    manager.close()


def test_load_skips_recovery_after_a_clean_shutdown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkacore.storage")
    manager = manager_of(tmp_path)
    topic_id = filled(manager)
    stored = manager.get("orders", 0).read(0, 1 << 20).records  # type: ignore[union-attr]
    manager.close(broker_epoch=7)
    assert clean_shutdown.read_epoch(str(tmp_path)) == 7
    points = checkpoints.OffsetCheckpoint(str(tmp_path), checkpoints.RECOVERY_POINT).read()
    assert points == {("orders", 0): 90, ("orders", 1): 90}

    manager = manager_of(tmp_path)
    assert not clean_shutdown.exists(str(tmp_path))
    assert "its 2 logs need no recovery" in caplog.text
    assert "recovered" not in caplog.text
    handle = manager.get("orders", 0)
    assert handle is not None
    assert (handle.topic_id, handle.end_offset, handle.synced_offset, handle.high_watermark) == (topic_id, 90, 90, 90)
    assert handle.read(0, 1 << 20).records == stored
    assert handle.leader_epochs() == [(5, 0)]
    manager.close()


def test_load_checks_every_batch_behind_the_recovery_point_after_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafkacore.storage")
    manager = manager_of(tmp_path)
    filled(manager)
    del manager

    log = max((tmp_path / "orders-0").glob("*.log"))
    whole = log.stat().st_size
    with log.open("ab") as file:
        file.write(batch()[:70])
    manager = manager_of(tmp_path)
    assert "the node recovers its 2 logs" in caplog.text
    checked = sum(each.size_bytes for each in manager.get("orders", 0).segments())  # type: ignore[union-attr]
    assert f"orders-0: recovered 3 segments with {checked} bytes" in caplog.text
    assert manager.get("orders", 0).end_offset == 90  # type: ignore[union-attr]
    assert log.stat().st_size == whole
    manager.close()


@pytest.mark.parametrize("begins", [True, False], ids=["load-fails", "no-load"])
def test_close_sets_no_clean_mark_when_the_logs_of_a_crash_were_not_recovered(tmp_path: Path, begins: bool) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    del manager
    log = max((tmp_path / "orders-0").glob("*.log"))
    with log.open("ab") as file:
        file.write(batch()[:70])
    (tmp_path / "my files").mkdir()

    manager = LogManager(Environment(), [str(tmp_path)], lambda topic: SETTINGS)
    if begins:
        with pytest.raises(LogDirectoryError, match="is not the directory of a partition"):
            manager.load()
    manager.close()
    assert not clean_shutdown.exists(str(tmp_path)), "the next start would trust bytes that belong to no whole batch"
    (tmp_path / "my files").rmdir()
    manager = manager_of(tmp_path)
    assert manager.get("orders", 0).end_offset == 90  # type: ignore[union-attr]
    manager.close()


@pytest.mark.parametrize("begins", [True, False], ids=["load-fails", "no-load"])
def test_close_keeps_the_mark_and_the_checkpoints_when_a_clean_start_fails(tmp_path: Path, begins: bool) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    handle = manager.get("orders", 0)
    assert handle is not None
    assert handle.delete_records(10)[0] == 0
    manager.close(broker_epoch=7)
    names_of = (checkpoints.RECOVERY_POINT, checkpoints.LOG_START_OFFSET, checkpoints.REPLICATION_OFFSET)
    stored = {name: (tmp_path / name).read_bytes() for name in names_of}

    (tmp_path / "my files").mkdir()
    manager = LogManager(Environment(), [str(tmp_path)], lambda topic: SETTINGS)
    if begins:
        with pytest.raises(LogDirectoryError, match="is not the directory of a partition"):
            manager.load()
    manager.close(broker_epoch=7)
    assert {name: (tmp_path / name).read_bytes() for name in names_of} == stored
    assert clean_shutdown.read_epoch(str(tmp_path)) == 7
    (tmp_path / "my files").rmdir()
    manager = manager_of(tmp_path)
    assert manager.get("orders", 0).log_start_offset == 10, "deleted records came back"  # type: ignore[union-attr]
    manager.close()


def test_flush_is_due_by_the_time_passed_when_the_wall_clock_jumps(tmp_path: Path) -> None:
    clock = ManualClock()
    manager = manager_of(tmp_path, clock=clock)
    filled(manager)
    for hours in (2, -1, -3):
        clock.step_wall_ms(hours * 3_600_000)
        assert manager.flush_due() == 0
    clock.advance_ms(SETTINGS.flush_ms - 1)
    assert manager.flush_due() == 0
    clock.advance_ms(1)
    assert manager.flush_due() == 2
    manager.close()


def test_deleted_partition_is_renamed_at_once_and_removed_after_its_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    manager = manager_of(tmp_path, clock=clock)
    filled(manager)
    manager.delete([("orders", 0)])
    (aside,) = [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    assert names.parse_partition_directory(aside) == ("orders", 0, names.Kind.DELETE)
    assert manager.get("orders", 0) is None
    assert manager.remove_doomed() == 0
    clock.advance_ms(60_000)
    assert manager.remove_doomed() == 1
    assert sorted(name for name in os.listdir(tmp_path) if "orders" in name) == ["orders-1"]
    manager.close()


def test_start_removes_deleted_directories_and_keeps_strays(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    manager.delete([("orders", 0)])
    manager.delete([("orders", 1)], names.Kind.STRAY)
    manager.close()
    manager = manager_of(tmp_path)
    assert list(manager) == []
    assert manager.remove_doomed() == 1
    (left,) = [name for name in os.listdir(tmp_path) if "orders" in name]
    assert left.endswith("-stray")
    manager.close()


def test_log_starts_at_zero_when_its_topic_is_created_again(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    manager.delete([("orders", 0), ("orders", 1)])
    filled(manager, batches=1)
    handle = manager.get("orders", 0)
    assert handle is not None
    assert (handle.log_start_offset, handle.end_offset) == (0, 3)
    manager.close()


def test_directory_of_a_deleted_log_is_renamed_before_the_deletion_waits_for_another_log(tmp_path: Path) -> None:
    # Otherwise a second deletion of the log, which finds nothing to do, would let the next log use the old directory.
    manager = manager_of(tmp_path)
    filled(manager)
    with manager.futures.alone(("orders", 1)):
        deletion = threading.Thread(target=manager.delete, args=([("orders", 0), ("orders", 1)],))
        deletion.start()
        wait_until(lambda: manager.get("orders", 0) is None, 10, "the first deletion")
        manager.delete([("orders", 0)])
        assert not (tmp_path / "orders-0").exists()
        assert (tmp_path / "orders-1").exists()
    deletion.join(30)
    assert not (tmp_path / "orders-1").exists()
    manager.close()


def test_retention_of_a_deleted_log_leaves_the_next_log_of_this_name_alone(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    old = manager.get("orders", 0)
    assert old is not None
    manager.delete([("orders", 0), ("orders", 1)])
    filled(manager, batches=1)
    files = sorted(each.name for each in (tmp_path / "orders-0").iterdir())
    old.configure(LogSettings(retention_bytes=0))
    assert old.delete_old_segments() == 0  # a retention pass that began before the deletion
    assert sorted(each.name for each in (tmp_path / "orders-0").iterdir()) == files
    manager.close()


@pytest.mark.parametrize("leaves", ["deleted", "deleted-by-a-later-run", "deleted-just-before-a-crash"])
def test_new_log_keeps_its_records_when_the_node_is_killed_after_its_topic_is_created_again(
    tmp_path: Path, leaves: str
) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    for handle in manager:
        assert handle.delete_records(40)[0] == 0
    write_checkpoints(manager)
    if leaves == "deleted-by-a-later-run":
        manager.close()
        manager = manager_of(tmp_path)
    if leaves == "deleted-just-before-a-crash":
        # The node was killed after it had renamed the directories, but before it wrote a checkpoint.
        del manager, handle
        for index in range(2):
            os.rename(tmp_path / f"orders-{index}", tmp_path / f"orders-{index}.{'0' * 32}-delete")
        manager = manager_of(tmp_path)
    else:
        manager.delete([("orders", 0), ("orders", 1)])
    assert all(entries == {} for entries in read_checkpoints(tmp_path).values())

    filled(manager, batches=1)
    del manager
    manager = manager_of(tmp_path)
    found = [(handle.log_start_offset, handle.end_offset) for handle in manager]
    assert found == [(0, 3), (0, 3)]
    manager.close()


def test_deletion_of_many_logs_writes_each_checkpoint_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    filled(manager, "others")
    write_checkpoints(manager)
    manager.delete([("unknown", 0)])
    before = read_checkpoints(tmp_path)
    written: list[str] = []
    write = checkpoints.OffsetCheckpoint.write

    def noted(checkpoint: checkpoints.OffsetCheckpoint, offsets: dict[tuple[str, int], int]) -> None:
        written.append(os.path.basename(checkpoint.path))
        write(checkpoint, offsets)

    monkeypatch.setattr(checkpoints.OffsetCheckpoint, "write", noted)
    manager.delete([("orders", 0), ("orders", 1)])
    assert sorted(written) == sorted([checkpoints.RECOVERY_POINT, checkpoints.REPLICATION_OFFSET])
    for name, entries in read_checkpoints(tmp_path).items():
        assert entries.keys() == {key for key in before[name] if key[0] == "others"}
    manager.close()


def test_log_start_offset_survives_a_restart(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    handle = manager.get("orders", 0)
    assert handle is not None
    assert handle.delete_records(40) == (0, 40, None)
    assert handle.delete_records(91) == (1, -1, None)
    assert handle.read(39).error == 1
    manager.close()
    assert checkpoints.OffsetCheckpoint(str(tmp_path), checkpoints.LOG_START_OFFSET).read() == {("orders", 0): 40}
    manager = manager_of(tmp_path)
    handle = manager.get("orders", 0)
    assert handle is not None
    assert handle.log_start_offset == 40
    found = handle.read(40, 1 << 20)
    assert next(iter(Batches(found.records))).last_offset >= 40
    manager.close()


def test_log_keeps_its_start_offset_over_restarts_when_all_its_segments_are_lost(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    topic_id = filled(manager)
    manager.close()
    checkpoints.OffsetCheckpoint(str(tmp_path), checkpoints.LOG_START_OFFSET).write({("orders", 0): 900})
    for _ in range(3):
        manager = manager_of(tmp_path)
        handle = manager.get("orders", 0)
        assert handle is not None
        assert (handle.log_start_offset, handle.end_offset) == (900, 900)
        manager.close()
    manager = manager_of(tmp_path)
    [handle] = manager.create("orders", topic_id, [0])
    handle.become_leader(1, 9)
    assert handle.append(batch()).first_offset == 900
    manager.close()


def test_new_log_goes_to_the_directory_with_the_fewest_logs(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    manager = manager_of(*paths)
    handles = manager.create("orders", Uuid.random(), range(6))
    assert sorted(handle.directory.path for handle in handles) == [str(paths[0])] * 3 + [str(paths[1])] * 3
    manager.close()


def test_failed_directory_is_left_out_and_reported_once(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    told: list[str] = []
    manager = manager_of(*paths, on_failure=told.append)
    handles = manager.create("orders", Uuid.random(), range(2))
    for handle in handles:
        handle.become_leader(1, 0)
        assert handle.append(batch()).error == 0
    handles[0].directory.fail(errno.EIO)
    manager.check_directories()
    manager.check_directories()
    assert told == [handles[0].directory.path]
    assert (handles[0].append(batch()).error, handles[0].read(0).error) == (56, 56)
    assert (handles[1].append(batch()).error, handles[1].read(0).error) == (0, 0)
    assert manager.create("more", Uuid.random(), [0])[0].directory.path == handles[1].directory.path
    manager.close()
    assert not clean_shutdown.exists(handles[0].directory.path)
    assert clean_shutdown.exists(handles[1].directory.path)


def test_close_reports_a_failed_directory_once_when_it_has_many_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    manager.native_directories[0].fail(errno.ENOSPC)
    manager.close()
    (report,) = [each for each in caplog.records if each.name == "kafkacore.storage"]
    assert report.getMessage() == f"the log directory {tmp_path} and its logs (2) are offline: No space left on device"
    assert not clean_shutdown.exists(str(tmp_path))


def test_start_fails_when_a_directory_is_not_a_log(tmp_path: Path) -> None:
    (tmp_path / "my files").mkdir()
    with pytest.raises(LogDirectoryError, match="my files is not the directory of a partition"):
        manager_of(tmp_path)


def test_partitions_of_a_directory_that_cannot_be_opened_are_offline_from_the_start(tmp_path: Path) -> None:
    told: list[str] = []
    environment = Environment()
    manager = LogManager(
        environment, [str(tmp_path)], lambda topic: SETTINGS, failed=["/not/there"], on_failure=told.append
    )
    manager.load()
    assert manager.directories() == [(str(tmp_path), True), ("/not/there", False)]
    assert [directory.path for directory in manager.native_directories] == [str(tmp_path)]
    (lost,) = manager.create("orders", Uuid.random(), [0], "/not/there")
    (kept,) = manager.create("others", Uuid.random(), [0])
    for handle in (lost, kept):
        handle.become_leader(1, 0)
    assert (lost.state, lost.append(batch()).error, kept.append(batch()).error) == ("failed", 56, 0)
    manager.close()
    assert told == []


def test_log_stays_when_its_topic_gets_an_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = manager_of(tmp_path)
    (handle,) = manager.create("orders", made_id("orders"), [0])
    handle.become_leader(1, 5)
    handle.append(batch())
    handle.close()
    given = Uuid.random()
    assert manager.create("orders", given, [0]) == [handle]
    assert handle.topic_id == given
    manager.close()
    manager = manager_of(tmp_path)
    (loaded,) = manager.create("orders", given, [0])
    assert (loaded.topic_id, loaded.end_offset) == (given, 3)
    assert "renaming" not in caplog.text
    manager.close()


def test_topic_gets_its_other_logs_when_the_id_of_one_cannot_be_written(tmp_path: Path) -> None:
    told: list[str] = []
    paths = tmp_path / "bad", tmp_path / "good"
    for path in paths:
        path.mkdir()
    manager = manager_of(*paths, on_failure=told.append)
    lost, kept = (manager.create("orders", made_id("orders"), [at], str(path))[0] for at, path in enumerate(paths))
    for handle in (lost, kept):
        handle.become_leader(1, 5)
        assert handle.append(batch()).error == 0
    # No file of this name can be written now.
    for name in ("partition.metadata", "partition.metadata.tmp"):
        (paths[0] / "orders-0" / name).mkdir()
    given = Uuid.random()
    made = manager.create("orders", given, range(3))
    assert made[:2] == [lost, kept]
    assert [each.topic_id for each in made] == [given] * 3
    manager.check_directories()
    assert told == [str(paths[0])]
    assert [each.append(batch()).error for each in (lost, kept)] == [56, 0]
    assert manager.create("orders", given, range(3)) == made
    manager.close()


def test_deletion_waits_when_no_descriptor_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next log with the same name must not find the directory of the deleted one."""
    manager = manager_of(tmp_path)
    filled(manager)
    with no_free_descriptor() as end:
        monkeypatch.setattr(time, "sleep", lambda seconds: end())
        manager.delete([("orders", 0), ("orders", 1)])
    assert manager.directories() == [(str(tmp_path), True)]
    left = [names.parse_partition_directory(name) for name in os.listdir(tmp_path)]
    assert [one.kind for one in left if one is not None] == [names.Kind.DELETE] * 2
    [handle] = manager.create("orders", Uuid.random(), [0])
    handle.become_leader(1, 0)
    assert handle.append(batch()).first_offset == 0
    manager.close()


def test_deletion_takes_the_directory_offline_when_no_descriptor_becomes_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    pauses: list[float] = []
    with no_free_descriptor():
        monkeypatch.setattr(time, "sleep", pauses.append)
        manager.delete([("orders", 0)])
    assert sum(pauses) == pytest.approx(30)
    assert manager.directories() == [(str(tmp_path), False)]
    manager.close()


def test_close_marks_the_directory_as_clean_when_a_descriptor_becomes_free(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    filled(manager)
    handle = manager.get("orders", 0)
    assert handle is not None
    with no_free_descriptor() as end, ThreadPoolExecutor(1) as pool:
        closing = pool.submit(manager.close)
        wait_until(lambda: handle.state == "rolling")
        end()
        closing.result(30)
    assert (handle.state, manager.directories()) == ("closed", [(str(tmp_path), True)])
    assert clean_shutdown.exists(str(tmp_path))


class ShortOfDescriptors(OsFiles):
    """Files that cannot be written as long as no file descriptor is free."""

    short = False

    def write(self, path: str, data: bytes) -> None:
        if self.short:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        super().write(path, data)


def with_a_truncated_log(path: Path, files: ShortOfDescriptors) -> tuple[LogManager, PartitionHandle]:
    """Returns a log that waits for a checkpoint, and its manager."""
    manager = manager_of(path, files=files)
    manager.await_cuts(True)
    filled(manager)
    handle = manager.get("orders", 0)
    assert handle is not None
    handle.flush()
    manager.checkpoint_recovery_points()
    handle.truncate_to(3)
    assert handle.awaits_checkpoint
    return manager, handle


def test_close_waits_when_a_truncated_log_cannot_be_checkpointed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ShortOfDescriptors()
    manager, handle = with_a_truncated_log(tmp_path, files)
    files.short = True
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(files, "short", False))
    manager.close()
    assert (handle.state, manager.directories()) == ("closed", [(str(tmp_path), True)])
    assert clean_shutdown.exists(str(tmp_path))
    assert read_checkpoints(tmp_path)[checkpoints.RECOVERY_POINT]["orders", 0] == 3


def test_close_takes_the_directory_offline_when_a_truncated_log_can_never_be_checkpointed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ShortOfDescriptors()
    manager, handle = with_a_truncated_log(tmp_path, files)
    files.short = True
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    manager.close()
    assert sum(pauses) == pytest.approx(30)
    assert (handle.state, manager.directories()) == ("failed", [(str(tmp_path), False)])
    assert not clean_shutdown.exists(str(tmp_path))


def with_deleted_records(path: Path, files: ShortOfDescriptors) -> LogManager:
    manager = manager_of(path, files=files)
    filled(manager)
    handle = manager.get("orders", 0)
    assert handle is not None
    assert handle.delete_records(7)[0] == 0
    return manager


def test_close_waits_when_the_start_of_a_log_cannot_be_checkpointed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ShortOfDescriptors()
    manager = with_deleted_records(tmp_path, files)
    files.short = True
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(files, "short", False))
    manager.close()
    assert clean_shutdown.exists(str(tmp_path))
    assert read_checkpoints(tmp_path)[checkpoints.LOG_START_OFFSET]["orders", 0] == 7


def test_close_sets_no_clean_mark_when_the_start_of_a_log_can_never_be_checkpointed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ShortOfDescriptors()
    manager = with_deleted_records(tmp_path, files)
    files.short = True
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    manager.close()
    assert sum(pauses) == pytest.approx(30)
    assert not clean_shutdown.exists(str(tmp_path))
