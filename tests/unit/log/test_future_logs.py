"""A log that moves to another directory while it is in use. No record is lost, and no reader sees a record twice."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from descriptors import no_free_descriptor
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log import move as log_move
from kafkacore._fast.log import partition, segment
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage import checkpoints, future_logs, log_loader, log_manager, names, partition_metadata
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.future_logs import MoveCancelled
from kafkacore.storage.log_manager import LogManager
from processes import wait_until

SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=256)
FLUSHED = LogSettings(segment_bytes=4096, index_interval_bytes=256, flush_messages=1)
LARGER = LogSettings(segment_bytes=9000, index_interval_bytes=512, flush_messages=1)
TOPIC_ID = Uuid(b"t" * 16)
KEY = ("orders", 0)
STORAGE_ERROR = 56
NOW_MS = time.time_ns() // 1_000_000  # the present, because a load forgets producers whose last batch is old


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    for name in "ab":
        (tmp_path / name).mkdir()
    return str(tmp_path / "a"), str(tmp_path / "b")


def manager_of(
    paths: tuple[str, str],
    settings: LogSettings = SETTINGS,
    place_of: Callable[[str, int], str | None] = lambda topic, index: None,
) -> LogManager:
    manager = LogManager(Environment(), paths, lambda topic: settings)
    manager.load(place_of)
    return manager


def batch(count: int = 3, producer: int = -1, sequence: int = -1) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence
    )
    for i in range(count):
        builder.append(timestamp=NOW_MS + i, key=b"k", value=b"v" * 100)
    return builder.build()


def led(manager: LogManager, path: str, batches: int = 30, epoch: int = 5) -> PartitionHandle:
    [handle] = manager.create("orders", TOPIC_ID, [0], path)
    handle.become_leader(1, epoch)
    for _ in range(batches):
        assert handle.append(batch()).error == 0
    return handle


def stored(handle: PartitionHandle) -> bytes:
    return b"".join(parts(handle, handle.log_start_offset))


def parts(handle: PartitionHandle, offset: int) -> Iterator[bytes]:
    while offset < handle.end_offset:
        found = handle.read(offset, 1 << 20)
        assert found.error == 0
        whole = Batches(found.records)
        for each in whole:
            offset = each.next_offset
        yield found.records[: whole.position]


def copy_all(manager: LogManager) -> int:
    copied = 0
    while more := manager.futures.copy(KEY, 1 << 20):
        copied += more
    return copied


def move(manager: LogManager, path: str) -> None:
    manager.create_future(KEY, path)
    copy_all(manager)
    manager.replace_with_future(KEY)


def fail_to_replace(manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries to end a move while no file descriptor is free for the load of the new log."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(log_loader, "load", fails)
        with pytest.raises(OSError, match="Too many open files"):
            manager.replace_with_future(KEY)


def of_partition(path: str) -> list[names.Kind]:
    found = [names.parse_partition_directory(name) for name in sorted(os.listdir(path))]
    return [one.kind for one in found if one is not None]


def test_copy_keeps_the_log_start_when_compaction_removed_the_first_batch(paths: tuple[str, str]) -> None:
    compacted = LogSettings(segment_bytes=4096, compact_policy=True)
    manager = manager_of(paths, compacted)
    led(manager, paths[0], 3)
    manager.close()
    (segment_path,) = Path(paths[0]).glob("orders-0/*.log")
    data = segment_path.read_bytes()
    segment_path.write_bytes(data[next(iter(Batches(data))).size_bytes :])
    for suffix in (".index", ".timeindex"):
        segment_path.with_suffix(suffix).unlink()
    manager = manager_of(paths, compacted)
    handle = manager.get("orders", 0)
    assert handle is not None
    handle.become_leader(1, 6)
    move(manager, paths[1])
    manager.close()
    again = manager_of(paths, compacted).get("orders", 0)
    assert again is not None
    assert (again.directory.path, again.log_start_offset, again.end_offset) == (paths[1], 0, 9)


def test_moved_log_keeps_its_records_and_continues_in_its_new_directory(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    handle.become_leader(1, 9, 1)
    before = stored(handle)
    move(manager, paths[1])
    assert (handle.directory.path, handle.role, handle.end_offset) == (paths[1], "leader", 90)
    assert manager.get(*KEY) is handle
    assert (stored(handle), handle.synced_offset, handle.high_watermark) == (before, 90, 90)
    # The last epoch has no record yet, but the copy has it too.
    assert handle.leader_epochs() == [(5, 0), (9, 90)]
    assert (of_partition(paths[0]), of_partition(paths[1])) == ([names.Kind.DELETE], [names.Kind.LIVE])
    assert handle.append(batch()).first_offset == 90
    assert len(handle.segments()) > 3
    manager.close()
    manager = manager_of(paths)
    again = manager.get(*KEY)
    assert again is not None
    assert (again.end_offset, again.leader_epochs(), again.topic_id) == (93, [(5, 0), (9, 90)], TOPIC_ID)
    assert stored(again).startswith(before)
    manager.close()


def test_log_moves_back_and_leaves_nothing_behind(paths: tuple[str, str]) -> None:
    gc.collect()  # frees objects that an earlier test left in a reference cycle (with a traceback)
    live = partition.live_count(), segment.live_count()
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    before = stored(handle)
    for path in (paths[1], paths[0], paths[1]):
        move(manager, path)
    assert stored(handle) == before
    assert manager.futures.all() == []
    manager.close()
    del manager, handle
    assert (partition.live_count(), segment.live_count()) == live


def test_log_without_files_moves_without_files(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0], batches=0)
    move(manager, paths[1])
    assert (handle.directory.path, handle.state) == (paths[1], "lazy")
    assert (of_partition(paths[0]), of_partition(paths[1])) == ([], [])
    assert handle.append(batch()).first_offset == 0
    assert of_partition(paths[1]) == [names.Kind.LIVE]
    manager.close()


def test_log_that_has_lost_its_segments_keeps_its_start_when_it_moves(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    led(manager, paths[0])
    manager.close()
    for each in Path(paths[0]).glob("orders-0/*.log"):
        each.unlink()
    checkpoints.OffsetCheckpoint(paths[0], checkpoints.LOG_START_OFFSET).write({KEY: 100})
    manager = manager_of(paths)
    handle = manager.get(*KEY)
    assert handle is not None
    assert (handle.state, handle.log_start_offset) == ("lazy", 100)
    move(manager, paths[1])
    assert (of_partition(paths[0]), of_partition(paths[1])) == ([names.Kind.DELETE], [names.Kind.LIVE])
    manager.close()
    again = manager_of(paths).get(*KEY)
    assert again is not None
    assert (again.directory.path, again.log_start_offset, again.end_offset) == (paths[1], 100, 100)


def test_moved_log_knows_its_idempotent_producers(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0], batches=0)
    sent = batch(3, producer=7, sequence=0)
    assert handle.append(sent).first_offset == 0
    move(manager, paths[1])
    again = handle.append(sent)
    assert (again.error, again.duplicate, again.first_offset) == (0, True, 0)
    assert handle.append(batch(3, producer=7, sequence=3)).first_offset == 3
    manager.close()
    manager = manager_of(paths)
    [handle] = manager.create("orders", TOPIC_ID, [0])
    handle.become_leader(1, 6)
    assert handle.append(batch(3, producer=7, sequence=3)).duplicate
    manager.close()


def test_appends_and_reads_continue_during_a_move(paths: tuple[str, str]) -> None:
    manager = manager_of(paths, FLUSHED)
    handle = led(manager, paths[0])
    ended = threading.Event()
    acknowledged: list[tuple[int, bytes]] = []
    problems: list[str] = []

    def produce(number: int) -> None:
        sequence = 0
        while not ended.is_set():
            value = b"%d-%d" % (number, sequence)
            builder = RecordBatchBuilder()
            builder.append(timestamp=1_700_000_000_000, key=None, value=value)
            result = handle.append(builder.build(), acks=-1)
            if result.error or handle.synced_offset <= result.last_offset:
                problems.append(f"{value!r}: error {result.error}, synced {handle.synced_offset}")
            acknowledged.append((result.first_offset, value))
            sequence += 1

    def consume() -> None:
        seen = 0
        while not ended.is_set():
            # The reader reads from random offsets as well as near the end. Its first read opens the index of a sealed
            # segment.
            at = random.randrange(handle.end_offset) if seen % 2 else max(handle.end_offset - 3, 0)
            found = handle.read(at, 10_000)
            try:
                offsets = [record.offset for each in Batches(found.records) for record in each]
            except ValueError as error:
                problems.append(f"{error} at {at}")
                offsets = [at]
            if found.error or at not in offsets or offsets != list(range(offsets[0], offsets[-1] + 1)):
                problems.append(f"error {found.error} at {at}: {offsets}")
            seen += 1

    threads = [threading.Thread(target=produce, args=[number]) for number in range(3)]
    threads.append(threading.Thread(target=consume))
    for thread in threads:
        thread.start()
    for number, path in enumerate((paths[1], paths[0]) * 4):
        had = len(acknowledged)
        # The two logs roll at different sizes, so they have different segments.
        handle.configure((FLUSHED, LARGER)[number % 2])
        move(manager, path)
        while len(acknowledged) < had + 20 and all(thread.is_alive() for thread in threads):
            continue
    ended.set()
    for thread in threads:
        thread.join()
    assert problems == []
    found = {record.offset: record.value for part in parts(handle, 0) for each in Batches(part) for record in each}
    assert {offset: found[offset] for offset, _ in acknowledged} == dict(acknowledged)
    assert len(found) == len(acknowledged) + 90
    manager.close()


def test_retention_and_deletion_during_a_move_apply_to_the_moved_log(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    assert manager.futures.copy(KEY, 8192) >= 8192
    # The offset is in the middle of a batch that has already been copied.
    assert handle.delete_records(31) == (0, 31, None)
    copy_all(manager)
    manager.replace_with_future(KEY)
    assert handle.log_start_offset == 31
    assert (handle.read(30).error, handle.read(31).error) == (1, 0)
    # A segment that has no records above the log start is also deleted from the future log.
    first = handle.segments()[0].base_offset
    assert 0 < first <= 31
    points = checkpoints.OffsetCheckpoint(paths[1], checkpoints.LOG_START_OFFSET).read()
    assert points == {KEY: 31}
    manager.close()


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("start", [30, 31, 32, 88])
def test_log_moves_when_its_start_is_within_a_batch(paths: tuple[str, str], start: int, compacts: bool) -> None:
    manager = manager_of(paths, LogSettings(segment_bytes=4096, compact_policy=compacts))
    handle = led(manager, paths[0])
    assert handle.delete_records(start) == (0, start, None)
    before = stored(handle)
    move(manager, paths[1])
    assert handle.directory.path == paths[1]
    assert (handle.log_start_offset, handle.end_offset, stored(handle)) == (start, 90, before)
    manager.close()


@pytest.mark.parametrize("copied", [1, 0])
@pytest.mark.parametrize("batches", [30, 0])
def test_copy_restarts_when_the_log_start_passes_the_copied_part(
    paths: tuple[str, str], batches: int, copied: int
) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    if copied:
        manager.futures.copy(KEY, copied)
    assert handle.delete_records(-1) == (0, 90, None)
    for _ in range(batches):
        assert handle.append(batch()).error == 0
    copy_all(manager)
    manager.replace_with_future(KEY)
    assert (handle.log_start_offset, handle.end_offset) == (90, 90 + 3 * batches)
    assert of_partition(paths[1]) == [names.Kind.LIVE]
    manager.close()
    manager = manager_of(paths)
    again = manager.get(*KEY)
    assert again is not None
    assert (again.log_start_offset, again.end_offset) == (90, 90 + 3 * batches)
    manager.close()


def test_truncation_applies_to_the_future_log_too(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    handle.truncate_to(45)
    handle.become_leader(1, 6, 1)
    for _ in range(20):
        handle.append(batch(2))
    copy_all(manager)
    before = stored(handle)
    manager.replace_with_future(KEY)
    assert stored(handle) == before
    assert handle.leader_epochs() == [(5, 0), (6, 45)]
    manager.close()


def test_moved_log_has_the_records_that_replaced_others_during_a_copy(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of both epochs begin at offset 90, so the copy finds records there that it could append."""
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    agree = future_logs._agree

    def agree_too_early(current: PartitionHandle, future: PartitionHandle) -> None:
        agree(current, future)
        monkeypatch.undo()
        current.truncate_to(45)
        current.become_leader(1, 6, 1)
        for _ in range(20):
            assert current.append(batch()).error == 0

    monkeypatch.setattr(future_logs, "_agree", agree_too_early)
    manager.futures.copy(KEY, 1 << 20)
    [future] = manager.futures.all()
    before = stored(handle)
    assert (future.handle.leader_epochs(), stored(future.handle)) == ([(5, 0), (6, 45)], before)
    manager.replace_with_future(KEY)
    assert (handle.directory.path, stored(handle)) == (paths[1], before)
    manager.close()


@pytest.mark.parametrize("appends", [10, 23, 40])  # the log then ends before the copy, at its end, or after it
def test_moved_log_has_the_records_that_replaced_others_just_before_the_replacement(
    paths: tuple[str, str], appends: int
) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    handle.truncate_to(44)
    handle.become_leader(1, 6, 1)
    for _ in range(appends):
        handle.append(batch(2))
    before = stored(handle)
    manager.replace_with_future(KEY)
    assert handle.directory.path == paths[1]
    assert stored(handle) == before
    assert handle.leader_epochs()[-1] == (6, handle.end_offset - 2 * appends)
    manager.close()


def test_truncation_of_several_epochs_applies_to_the_future_log_too(paths: tuple[str, str]) -> None:
    """The current log lacks the last epoch of the copy, and ends an earlier one before the copy does (KIP-279)."""
    manager = manager_of(paths)
    handle = led(manager, paths[0], batches=20)
    handle.become_leader(1, 7, 1)
    handle.append(batch())
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    handle.truncate_to(45)
    for epoch, appends in ((6, 10), (8, 10)):
        handle.become_follower(2, 9 + epoch, epoch)
        other = RecordBatchBuilder(base_offset=handle.end_offset, partition_leader_epoch=epoch)
        for _ in range(3 * appends):
            other.append(timestamp=NOW_MS, key=b"k", value=b"other")
        assert handle.append_as_follower(other.build(), 9 + epoch).error == 0
    assert handle.leader_epochs() == [(5, 0), (6, 45), (8, 75)]
    before = stored(handle)
    copy_all(manager)
    manager.replace_with_future(KEY)
    assert stored(handle) == before
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_copy_resumes_a_future_log_that_a_start_finds(paths: tuple[str, str], clean: bool) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    manager.futures.copy(KEY, 8192)
    before, copied = stored(handle), manager.futures.all()[0].handle.end_offset
    assert 0 < copied < 90
    if clean:
        manager.close()
    del manager, handle
    manager = manager_of(paths)
    [future] = manager.futures.all()
    assert (future.handle.end_offset, future.handle.topic_id) == (copied, TOPIC_ID)
    handle = led(manager, paths[0], batches=0)
    manager.create_future(KEY, paths[1])  # the same directory again
    missing = len(before) - future.handle.size_bytes
    assert 0 < copy_all(manager) == missing
    manager.replace_with_future(KEY)
    assert (handle.directory.path, stored(handle)) == (paths[1], before)
    manager.close()


def test_cancelled_move_leaves_the_log_in_its_directory(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    with pytest.raises(MoveCancelled, match="is being moved to"):
        manager.create_future(KEY, paths[0])
    manager.futures.copy(KEY, 8192)
    manager.drop_future(KEY)
    assert of_partition(paths[1]) == [names.Kind.DELETE]
    with pytest.raises(MoveCancelled, match="no longer exists"):
        manager.futures.copy(KEY, 1)
    assert (handle.directory.path, handle.append(batch()).error) == (paths[0], 0)
    manager.close()


def entries_in(path: str) -> dict[str, int]:
    """Returns the offset of the partition in each checkpoint of a directory that has one."""
    read = {name: checkpoints.OffsetCheckpoint(path, name).read() for name in checkpoints.OFFSETS}
    return {name: entries[KEY] for name, entries in read.items() if KEY in entries}


def copy_with_entries(manager: LogManager, paths: tuple[str, str]) -> None:
    """Copies a log completely. The log and its future log both get entries in the checkpoints of their directories."""
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    assert handle.delete_records(31)[0] == 0
    copy_all(manager)
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_starts()
    manager.checkpoint_high_watermarks()
    for path in paths:
        assert entries_in(path)[checkpoints.LOG_START_OFFSET] == 31


def test_checkpoints_of_the_former_directory_do_not_contain_a_log_that_has_moved(paths: tuple[str, str]) -> None:
    """Otherwise the entries would apply to this log if it moves back."""
    manager = manager_of(paths)
    copy_with_entries(manager, paths)
    manager.replace_with_future(KEY)
    assert entries_in(paths[0]) == {}
    assert entries_in(paths[1])[checkpoints.LOG_START_OFFSET] == 31
    manager.close()


def test_checkpoints_do_not_contain_a_future_log_that_was_dropped(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    copy_with_entries(manager, paths)
    manager.drop_future(KEY)
    assert entries_in(paths[1]) == {}
    assert entries_in(paths[0])[checkpoints.LOG_START_OFFSET] == 31
    manager.close()


def test_checkpoints_do_not_contain_a_future_log_that_could_not_replace_its_log(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_of(paths)
    copy_with_entries(manager, paths)

    def fails(current: PartitionHandle, fresh: PartitionHandle) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(log_move, "adopt", fails)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        manager.replace_with_future(KEY)
    assert of_partition(paths[1]) == [names.Kind.STRAY]
    assert entries_in(paths[1]) == {}
    manager.close()


def test_deletion_of_a_partition_deletes_its_future_log(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    manager.futures.copy(KEY, 8192)
    manager.delete([KEY])
    assert (of_partition(paths[0]), of_partition(paths[1])) == ([names.Kind.DELETE], [names.Kind.DELETE])
    with pytest.raises(MoveCancelled):
        manager.replace_with_future(KEY)
    manager.close()


def test_metadata_decides_when_two_directories_hold_the_same_log(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    led(manager, paths[0])
    manager.close()
    shutil.copytree(f"{paths[0]}/orders-0", f"{paths[1]}/orders-0")
    with pytest.raises(LogDirectoryError, match=f"{paths[1]}/orders-0: the partition is also in {paths[0]}/orders-0"):
        manager_of(paths)
    manager = manager_of(paths, place_of=lambda topic, index: paths[1])
    handle = manager.get(*KEY)
    assert handle is not None
    assert (handle.directory.path, handle.end_offset) == (paths[1], 90)
    assert of_partition(paths[0]) == [names.Kind.STRAY]
    manager.close()


def test_start_promotes_a_future_log_when_the_current_one_is_missing(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    before = stored(handle)
    manager.close()
    shutil.rmtree(f"{paths[0]}/orders-0")
    manager = manager_of(paths)
    assert manager.get(*KEY) is None
    manager.futures.promote(KEY)
    promoted = manager.get(*KEY)
    assert promoted is not None
    assert (stored(promoted), of_partition(paths[1])) == (before, [names.Kind.LIVE])
    manager.close()


def checkpointed_copy(manager: LogManager, path: str) -> PartitionHandle:
    """Returns a log whose complete copy is synced. The checkpoint of the copy's directory has the recovery point 90."""
    handle = led(manager, path)
    (other,) = (one for one, _ in manager.directories() if one != path)
    manager.create_future(KEY, other)
    copy_all(manager)
    future = manager.futures.get(KEY)
    assert future is not None
    future.handle.flush()
    manager.checkpoint_recovery_points()
    assert checkpoints.OffsetCheckpoint(other, checkpoints.RECOVERY_POINT).read() == {KEY: 90}
    assert handle.recovery_point < 75
    manager.await_cuts(True)
    return handle


def test_moved_log_takes_no_append_after_a_truncation_until_the_recovery_point_of_its_copy_is_lowered(
    paths: tuple[str, str],
) -> None:
    """Otherwise, a load after a power loss would trust records that the log appended without a sync."""
    manager = manager_of(paths)
    handle = checkpointed_copy(manager, paths[0])
    manager.futures.replace_current(KEY)  # before the manager writes the checkpoints again
    handle.truncate_to(75)
    assert handle.awaits_checkpoint
    manager.checkpoint_cuts()
    assert not handle.awaits_checkpoint
    manager.close()


def test_promoted_log_awaits_a_checkpoint_when_it_is_truncated(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    checkpointed_copy(manager, paths[0])
    manager.close()
    shutil.rmtree(f"{paths[0]}/orders-0")
    manager = manager_of(paths)
    manager.futures.promote(KEY)
    manager.await_cuts(True)
    promoted = manager.get(*KEY)
    assert promoted is not None
    promoted.truncate_to(75)
    assert promoted.awaits_checkpoint
    manager.close()


def test_future_log_that_is_opened_again_awaits_a_checkpoint_when_it_is_truncated(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_of(paths)
    checkpointed_copy(manager, paths[0])
    fail_to_replace(manager, monkeypatch)
    copy_all(manager)
    future = manager.futures.get(KEY)
    assert future is not None
    future.handle.truncate_to(75)
    assert future.handle.awaits_checkpoint
    manager.close()


@pytest.mark.parametrize("which", [0, 1])
def test_failed_directory_ends_the_move_and_keeps_the_other_log(paths: tuple[str, str], which: int) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    manager.futures.copy(KEY, 8192)
    manager.native_directories[which].fail(errno.EIO)
    with pytest.raises(OSError, match="cannot be copied"):
        manager.futures.copy(KEY, 8192)
    with pytest.raises(OSError, match=r"orders-0"):
        manager.replace_with_future(KEY)
    manager.check_directories()
    assert handle.directory.path == paths[0]
    assert handle.append(batch()).error == (STORAGE_ERROR if which == 0 else 0)
    # The copied part of the log remains for the next start.
    assert of_partition(paths[1]) == [names.Kind.FUTURE]
    manager.close()


def test_late_failure_of_the_former_directory_does_not_fail_the_moved_log(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    source, target = manager.native_directories
    move(manager, paths[1])
    # The thread that reports the failure may not know that the log has already moved to the other directory.
    log_move.fail(handle, source, errno.EIO)
    assert (source.offline_errno, target.offline_errno, handle.append(batch()).error) == (errno.EIO, 0, 0)
    log_move.fail(handle, target, errno.EIO)
    assert (target.offline_errno, handle.append(batch()).error) == (errno.EIO, STORAGE_ERROR)
    manager.close()


def test_current_log_stays_when_its_future_log_cannot_be_promoted(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    os.mkdir(f"{paths[1]}/orders-0")
    Path(paths[1], "orders-0", "not empty").touch()
    with pytest.raises(OSError, match=f"{paths[1]}/orders-0"):
        manager.replace_with_future(KEY)
    assert (handle.directory.path, handle.append(batch()).error) == (paths[0], 0)
    assert manager.directories() == [(paths[0], True), (paths[1], False)]
    manager.close()


@pytest.mark.parametrize(
    ("where", "what", "error"),
    [
        (log_loader, "load", MemoryError()),
        (log_loader, "load", OSError(errno.EMFILE, "Too many open files")),
        (log_move, "adopt", OSError(errno.ENOMEM, "Cannot allocate memory")),
    ],
    ids=["memory for the load", "files for the load", "the change itself"],
)
def test_replacement_can_be_tried_again_when_it_failed(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch, where: object, what: str, error: Exception
) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(where, what, fails)
        with pytest.raises(OSError, match=r"orders-0|memory"):
            manager.replace_with_future(KEY)
    assert (handle.directory.path, handle.append(batch()).error) == (paths[0], 0)
    assert names.Kind.LIVE not in of_partition(paths[1])
    before = stored(handle)
    move(manager, paths[1])
    assert (handle.directory.path, stored(handle)) == (paths[1], before)
    assert handle.append(batch()).error == 0
    assert manager.directories() == [(paths[0], True), (paths[1], True)]
    manager.close()


@pytest.mark.parametrize(("where", "what"), [(log_loader, "load"), (log_move, "adopt")])
def test_new_log_gives_its_name_up_when_no_descriptor_is_free(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch, where: object, what: str
) -> None:
    """Otherwise, the node's next start would find two logs. It might choose the new one, which lacks the latest
    records."""
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    with ExitStack() as shortage, monkeypatch.context() as patch:

        def fails(*_: object, **__: object) -> None:
            end = shortage.enter_context(no_free_descriptor())
            patch.setattr(time, "sleep", lambda seconds: end())
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patch.setattr(where, what, fails)
        with pytest.raises(OSError, match="Too many open files"):
            manager.replace_with_future(KEY)
    assert manager.directories() == [(paths[0], True), (paths[1], True)]
    assert names.Kind.LIVE not in of_partition(paths[1])
    assert (handle.directory.path, handle.append(batch()).error) == (paths[0], 0)
    before = stored(handle)
    move(manager, paths[1])
    assert (handle.directory.path, stored(handle)) == (paths[1], before)
    assert manager.directories() == [(paths[0], True), (paths[1], True)]
    manager.close()


@pytest.mark.parametrize("seed", range(8))
def test_log_that_could_not_be_loaded_under_its_new_name_keeps_the_former_one_after_a_power_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    for path in ("/a", "/b"):
        disk.make_directories(path)
    disk.sync_directory("/")
    environment = disk.environment()
    manager = LogManager(environment, ["/a", "/b"], lambda topic: FLUSHED, files=disk)
    manager.load()
    handle = led(manager, "/a", batches=10)
    manager.create_future(KEY, "/b")
    copy_all(manager)
    fail_to_replace(manager, monkeypatch)
    assert handle.append(batch(), acks=-1).error == 0
    before = stored(handle)
    disk.cut_power()
    disk.restart(seed)
    del manager, handle
    manager = LogManager(environment, ["/a", "/b"], lambda topic: FLUSHED, files=disk)
    manager.load(lambda topic, index: "/b")  # the controller already knew the assignment
    found = manager.get(*KEY)
    assert found is not None
    assert (found.directory.path, stored(found)) == ("/a", before)
    manager.close()


@pytest.mark.parametrize("which", [0, 1])
def test_directory_that_fails_during_a_replacement_fails_no_other_directory(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    manager = manager_of(paths)
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    native, go_on = manager.native_directories[which], log_move.go_on

    def fail_and_go_on(moved: PartitionHandle) -> None:
        native.fail(errno.EIO)
        manager.check_directories()
        go_on(moved)

    monkeypatch.setattr(log_move, "go_on", fail_and_go_on)
    manager.replace_with_future(KEY)
    manager.check_directories()
    assert manager.directories() == [(paths[0], which != 0), (paths[1], which != 1)]
    assert (manager.get(*KEY), handle.directory.path) == (handle, paths[1])
    assert handle.append(batch()).error == (STORAGE_ERROR if which == 1 else 0)
    assert handle.state == ("failed" if which == 1 else "open")
    assert manager.futures.all() == []
    manager.close()


def test_copied_bytes_are_synced_before_appends_have_to_wait(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_of(paths, LogSettings())
    handle = led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    [future] = manager.futures.all()
    synced: list[int] = []
    hold_still = log_move.hold_still

    def look_and_hold_still(held: PartitionHandle) -> None:
        synced.append(future.handle.synced_offset)
        hold_still(held)

    assert future.handle.synced_offset == 0
    monkeypatch.setattr(log_move, "hold_still", look_and_hold_still)
    manager.replace_with_future(KEY)
    assert synced[0] == handle.end_offset
    manager.close()


def test_placement_of_new_logs_counts_logs_that_move_into_a_directory(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    manager.create("orders", TOPIC_ID, range(3), paths[0])
    for index in range(3):
        manager.create_future(("orders", index), paths[1])
    placed = manager.create("others", Uuid.random(), range(2))
    assert [handle.directory.path for handle in placed] == list(paths)
    manager.close()


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_records_survive_a_power_cut_during_the_replacement(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The simulated disk decides in the order of names what it keeps. With fixed ids, a seed always gives the same
    # result.
    numbered = SimpleNamespace(random=lambda: Uuid(b"u" * 16))
    for module in (future_logs, log_manager):
        monkeypatch.setattr(module, "Uuid", numbered)
    operation, moved, found_in = 0, False, set()
    while not moved:
        disk = SimulatedDisk()
        for path in ("/a", "/b"):
            disk.make_directories(path)
        disk.sync_directory("/")
        environment = disk.environment()
        manager = LogManager(environment, ["/a", "/b"], lambda topic: FLUSHED, files=disk)
        manager.load()
        handle = led(manager, "/a", batches=10)
        before = stored(handle)
        manager.create_future(KEY, "/b")
        copy_all(manager)
        disk.cut_power_at(disk.operations + operation)
        try:
            manager.replace_with_future(KEY)
            moved = not disk.is_dead
        except (OSError, MoveCancelled):
            moved = False
        operation += 1
        manager.check_directories()
        disk.restart(3 * operation + seed)
        del manager, handle
        manager = LogManager(environment, ["/a", "/b"], lambda topic: FLUSHED, files=disk)
        manager.load(lambda topic, index: "/b")  # the controller already knew the assignment
        if manager.get(*KEY) is None:
            manager.futures.promote(KEY)
        found = manager.get(*KEY)
        assert found is not None, operation
        assert stored(found) == before, operation
        found_in.add(found.directory.path)
        manager.close()
        del manager, found
    assert found_in == {"/a", "/b"}
    assert operation > 20


def test_log_moves_when_it_ends_with_an_empty_segment_behind_its_last_batch(paths: tuple[str, str]) -> None:
    """Such a log remains after a compaction, or after the records before the empty segment were lost."""
    manager = manager_of(paths)
    led(manager, paths[0], batches=30)
    manager.close()
    for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        Path(paths[0], "orders-0", names.file_name(200, suffix)).write_bytes(b"")
    manager = manager_of(paths)
    handle = manager.get(*KEY)
    assert handle is not None
    handle.become_leader(1, 6)

    def records() -> list[bytes]:
        return [handle.read(offset, 1).records for offset in range(0, 90, 3)]

    before = records()
    assert handle.end_offset == 200
    assert all(before)
    manager.create_future(KEY, paths[1])
    future = manager.futures.get(KEY)
    assert future is not None
    while log_move.copy(handle, future.handle, 1 << 20, handle.truncations):
        pass
    assert future.handle.end_offset == 200
    manager.replace_with_future(KEY)
    assert handle.directory.path == paths[1]
    assert (handle.end_offset, records()) == (200, before)
    assert handle.append(batch()).first_offset == 200
    manager.close()
    manager = manager_of(paths)
    again = manager.get(*KEY)
    assert again is not None
    assert (again.directory.path, again.end_offset) == (paths[1], 203)
    manager.close()


def test_copy_has_the_records_that_a_log_gets_while_the_copy_looks_for_its_last_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the look-up, the log ends with an empty segment. During the look-up, the log gets records, and then
    another empty segment."""
    disk = SimulatedDisk()
    for path in ("/a", "/b"):
        disk.make_directories(path)
    environment = disk.environment()
    manager = LogManager(environment, ["/a", "/b"], lambda topic: SETTINGS, files=disk)
    manager.load()
    led(manager, "/a", batches=3)
    manager.close()
    for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        disk.write(f"/a/orders-0/{names.file_name(200, suffix)}", b"")  # with this gap, the look-up reads the disk
    manager = LogManager(environment, ["/a", "/b"], lambda topic: SETTINGS, files=disk)
    manager.load()
    handle = manager.get(*KEY)
    assert handle is not None
    handle.become_leader(1, 5)  # the same epoch, because the next copy would find the gap in a new epoch
    handle.configure(LogSettings(segment_bytes=500))
    handle.open_ahead()
    log_move.hold_still(handle)  # waits until the log is open, so the append needs no read
    log_move.go_on(handle)
    manager.create_future(KEY, "/b")
    future = manager.futures.get(KEY)
    assert future is not None
    while future.handle.end_offset < 9:
        manager.futures.copy(KEY, 1)
    copy, begun = log_move.copy, threading.Event()

    def begin_and_copy(*arguments: Any) -> int | None:
        begun.set()
        return copy(*arguments)

    monkeypatch.setattr(log_move, "copy", begin_and_copy)
    disk.pace("read", 200_000)
    copying = threading.Thread(target=manager.futures.copy, args=[KEY, 1 << 20])
    copying.start()
    assert begun.wait(30)  # this thread runs again when the copy has released the GIL, and so has begun its look-up
    assert handle.append(batch()).first_offset == 200
    disk.pace("read", 0)  # does not shorten the read of the look-up
    assert handle.append_now(bytearray(batch())) is None
    wait_until(lambda: handle.segments()[-1].base_offset == 203)
    copying.join()
    copy_all(manager)
    assert future.handle.end_offset == 203
    assert future.handle.read(200, 1).records == handle.read(200, 1).records != b""
    manager.close()


def test_future_log_is_not_created_while_its_log_is_deleted(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is created later with the same name would get this future log, and with it the id of the deleted
    topic."""
    manager = manager_of(paths)
    led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    rename, refused = manager.rename_aside, []

    def another_thread_asks(*arguments: Any) -> None:
        rename(*arguments)
        with pytest.raises(MoveCancelled, match="no longer exists"):
            manager.create_future(KEY, paths[1])
        refused.append(arguments)

    # The future logs know the manager only by a weak reference.
    monkeypatch.setattr(type(manager), "rename_aside", lambda self, *arguments: another_thread_asks(*arguments))
    manager.delete([KEY])
    assert (len(refused), manager.futures.get(KEY)) == (1, None)
    manager.close()


def test_future_log_of_an_earlier_topic_is_not_used_when_a_move_continues(paths: tuple[str, str]) -> None:
    manager = manager_of(paths)
    led(manager, paths[0])
    manager.create_future(KEY, paths[1])
    copy_all(manager)
    future = manager.futures.get(KEY)
    assert future is not None
    manager.close()
    os.unlink(os.path.join(future.path, partition_metadata.NAME))
    partition_metadata.write(future.path, Uuid(b"e" * 16))
    manager = manager_of(paths)
    with pytest.raises(MoveCancelled, match="belongs to another topic"):
        manager.create_future(KEY, paths[1])
    manager.close()
