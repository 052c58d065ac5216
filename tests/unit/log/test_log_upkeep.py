"""The upkeep thread does the work that is due, and reports a failed disk immediately. Also tests the published table of
partitions."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_table import Table, live_count
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.runtime.files import OsFiles
from kafkacore.storage import checkpoints
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.log_upkeep import LogUpkeep, UpkeepIntervals
from processes import wait_until

FAR_MS = 1 << 39


def batch(base_offset: int = 0) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset)
    builder.append(timestamp=1_700_000_000_000, key=None, value=b"v" * 100)
    return builder.build()


def write_three_records(handle: PartitionHandle) -> None:
    """Makes this node the leader, appends three records and syncs them."""
    handle.become_leader(1, 0)
    for _ in range(3):
        assert handle.append(batch()).error == 0
    assert handle.flush()


def intervals(**due: int) -> UpkeepIntervals:
    """Returns intervals that make only the work with the given name ever due."""
    names = UpkeepIntervals._fields
    return UpkeepIntervals(**{name: due.get(name, 1 if name == "initial_delay_ms" else FAR_MS) for name in names})


def test_upkeep_writes_checkpoints_and_deletes_old_segments(tmp_path: Path) -> None:
    environment = Environment()
    settings = LogSettings(segment_bytes=400, retention_bytes=500, retention_ms=-1)
    manager = LogManager(environment, [str(tmp_path)], lambda topic: settings)
    manager.load()
    (handle,) = manager.create("t", Uuid.random(), [0])
    handle.become_leader(1, 0)
    for _ in range(20):
        handle.append(batch())
    done = threading.Event()
    write = manager.checkpoint_high_watermarks

    def checkpoint_high_watermarks() -> None:
        write()
        done.set()

    manager.checkpoint_high_watermarks = checkpoint_high_watermarks  # type: ignore[method-assign]
    upkeep = LogUpkeep(manager, environment, intervals(retention_check_ms=1, high_watermark_ms=20))
    upkeep.start()
    assert done.wait(30)
    upkeep.close()
    upkeep.close()
    assert checkpoints.OffsetCheckpoint(str(tmp_path), checkpoints.REPLICATION_OFFSET).read() == {("t", 0): 20}
    assert handle.log_start_offset > 0
    assert handle.size_bytes >= 500
    manager.close()


def test_upkeep_reports_a_failed_disk_at_once(tmp_path: Path) -> None:
    environment = Environment()
    heard = threading.Event()
    manager = LogManager(environment, [str(tmp_path)], lambda topic: LogSettings(), on_failure=lambda path: heard.set())
    manager.load()
    (handle,) = manager.create("t", Uuid.random(), [0])
    upkeep = LogUpkeep(manager, environment, intervals())
    upkeep.start()
    handle.directory.fail(errno.EIO)
    assert heard.wait(30)
    upkeep.close()
    assert handle.state == "failed"
    manager.close()


def test_truncated_log_goes_on_when_the_tasks_of_the_upkeep_have_ended(tmp_path: Path) -> None:
    """A broker that stops may still truncate logs, and waits for their checkpoints."""
    environment = Environment()
    manager = LogManager(environment, [str(tmp_path)], lambda topic: LogSettings())
    manager.load()
    (handle,) = manager.create("t", Uuid.random(), [0])
    write_three_records(handle)
    manager.checkpoint_recovery_points()
    ran: list[int] = []

    def checkpoint_high_watermarks() -> None:
        ran.append(1)

    manager.checkpoint_high_watermarks = checkpoint_high_watermarks  # type: ignore[method-assign]
    upkeep = LogUpkeep(manager, environment, intervals(high_watermark_ms=1))
    upkeep.start()
    wait_until(lambda: ran)
    upkeep.end_tasks()
    assert upkeep.catch_up(30)
    count = len(ran)
    handle.truncate_to(1)
    assert handle.append_replicated(batch(base_offset=1), 0).error == 0
    assert checkpoints.OffsetCheckpoint(str(tmp_path), checkpoints.RECOVERY_POINT).read() == {("t", 0): 1}
    assert len(ran) == count
    upkeep.close()
    manager.close()


class DeletingFiles(OsFiles):
    """Calls `on_unlink` after each removal of a file."""

    on_unlink: Callable[[], None]

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.on_unlink()


def test_truncated_log_goes_on_while_the_upkeep_removes_a_deleted_log(tmp_path: Path) -> None:
    clock, files = ManualClock(), DeletingFiles()
    environment = Environment(clock)
    manager = LogManager(environment, [str(tmp_path)], lambda topic: LogSettings(), files=files)
    manager.load()
    doomed, handle = manager.create("t", Uuid.random(), [0, 1])
    write_three_records(doomed)
    write_three_records(handle)
    manager.checkpoint_recovery_points()
    checkpointed: list[int] = []

    def on_unlink() -> None:
        read = checkpoints.OffsetCheckpoint(str(tmp_path), checkpoints.RECOVERY_POINT).read()
        checkpointed.append(read["t", 1])
        if len(checkpointed) == 1:
            handle.truncate_to(1)

    upkeep = LogUpkeep(manager, environment, intervals())
    upkeep.start()
    manager.delete([("t", 0)])
    files.on_unlink = on_unlink
    clock.advance_ms(10 * LogSettings().file_delete_delay_ms)
    assert upkeep.catch_up(30)
    upkeep.close()
    files.on_unlink = lambda: None
    assert checkpointed[:2] == [3, 1]
    manager.close()


def test_checkpoint_that_has_failed_is_not_repeated_for_each_deleted_file(tmp_path: Path) -> None:
    clock, files = ManualClock(), DeletingFiles()
    environment = Environment(clock)
    manager = LogManager(environment, [str(tmp_path)], lambda topic: LogSettings(), files=files)
    manager.load()
    (doomed,) = manager.create("t", Uuid.random(), [0])
    write_three_records(doomed)
    removed: list[int] = []
    tried: list[int] = []

    def checkpoint_cuts() -> bool:
        tried.append(len(removed))
        return False

    manager.checkpoint_cuts = checkpoint_cuts  # type: ignore[method-assign]
    files.on_unlink = lambda: removed.append(1)
    upkeep = LogUpkeep(manager, environment, intervals())
    upkeep.start()
    manager.delete([("t", 0)])
    clock.advance_ms(10 * LogSettings().file_delete_delay_ms)
    assert upkeep.catch_up(30)
    upkeep.close()
    assert len(removed) > 2
    assert tried == [1]
    manager.close()


def test_table_finds_a_partition_by_name_and_by_id_and_shares_unchanged_entries(tmp_path: Path) -> None:
    before = live_count()
    directory = LogDirectory(Environment(), str(tmp_path))
    ids = [Uuid.random() for _ in range(50)]
    topics = [
        (f"topic-{i}", ids[i], [PartitionHandle(directory, f"topic-{i}", p, ids[i]) for p in range(3)])
        for i in range(50)
    ]
    table = Table().changed(topics)
    assert len(table) == 50
    assert all(table.find(name, 2) and table.find(topic_id, 0) for name, topic_id, _ in topics)
    assert not table.find("topic-0", 3)
    assert not table.find("topic-0", -1)
    assert not table.find("nobody", 0)

    fresh = Uuid.random()
    changed = table.changed([("topic-7", fresh, [None])], gone=[ids[3]])
    assert len(changed) == 49
    assert not changed.find(ids[7], 0)
    assert not changed.find("topic-7", 0), "the new table must not contain the partition"
    assert (fresh, 1) in [(topic_id, count) for _, topic_id, count in changed.topics()]
    assert not changed.find("topic-3", 0)
    assert changed.find("topic-4", 1)
    assert table.find("topic-3", 0), "the old table must not change"
    del table, changed
    assert live_count() == before
