"""Logs on a simulated disk whose power fails at each single operation. Also tests disks that are full and disks that
fail."""

from __future__ import annotations

import contextlib
import errno
import select
from collections.abc import Callable, Iterator

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import SYNCED as UNTIL_SYNCED
from kafkacore._fast.log.partition_watch import PartitionWatch
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage import log_loader
from kafkacore.storage.checkpoints import LOG_START_OFFSET, RECOVERY_POINT, OffsetCheckpoint
from kafkacore.storage.log_manager import LogManager
from seeds import SEED
from transactions import write_aborted_log

KAFKA_STORAGE_ERROR = 56
READ_COMMITTED = 1
TOPIC_ID = Uuid.random()
SYNCED = LogSettings(segment_bytes=2048, index_interval_bytes=200, flush_messages=1)
UNSYNCED = LogSettings(segment_bytes=2048, index_interval_bytes=200)


def batch(number: int, records: int = 2) -> bytes:
    builder = RecordBatchBuilder(producer_id=9, producer_epoch=0, base_sequence=number * records)
    for i in range(records):
        builder.append(timestamp=1_700_000_000_000 + number, key=b"%d" % number, value=b"%d" % i * 80)
    return builder.build()


def start(disk: SimulatedDisk, settings: LogSettings = SYNCED) -> tuple[LogManager, PartitionHandle]:
    manager = LogManager(disk.environment(), ["/data"], lambda topic: settings, files=disk)
    manager.load()
    (handle,) = manager.create("orders", TOPIC_ID, [0])
    handle.become_leader(1, handle.leader_epoch + 1 + (handle.leader_epochs() or [(0, 0)])[-1][0])
    return manager, handle


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def append_some(handle: PartitionHandle, first: int, count: int) -> int:
    """Appends batches with a sync. Returns how many of them the log acknowledged."""
    for number in range(first, first + count):
        result = handle.append(batch(number), acks=-1)
        if result.error or handle.high_watermark <= result.last_offset:
            return number - first
    return count


def check_log(handle: PartitionHandle, at_least: int) -> None:
    """Checks that the log contains whole batches without a gap, that the test sent each of them, and that no
    acknowledged batch is missing."""
    offset = handle.log_start_offset
    while offset < handle.end_offset:
        found = handle.read(offset, 1 << 20)
        assert found.error == 0
        assert found.records
        for one in Batches(found.records):
            assert one.crc_ok
            assert one.base_offset == offset
            assert [record.key for record in one] == [b"%d" % (offset // 2)] * 2
            offset = one.next_offset
    assert handle.end_offset >= at_least * 2
    assert handle.end_offset % 2 == 0


def operations_of_a_start() -> int:
    """Returns the number of disk operations of a start. Tests cut the power later, because a cut during the start
    leaves no log."""
    disk = new_disk()
    manager, _ = start(disk)
    operations = disk.operations
    manager.close()
    return operations


def operations_of_a_run() -> int:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 25) == 25
    manager.close()
    return disk.operations


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_acknowledged_batches_survive_a_power_cut_at_any_operation(seed: int) -> None:
    ordered = seed < 3  # otherwise the disk can keep any subset of the changes of names
    for cut in range(operations_of_a_start(), operations_of_a_run()):
        disk = new_disk()
        disk.cut_power_at(cut)
        manager, handle = start(disk)
        acknowledged = append_some(handle, 0, 25)
        manager.close()
        del manager, handle
        disk.restart(seed * 1000 + cut, ordered)
        manager, handle = start(disk)
        check_log(handle, acknowledged)
        # The log and its idempotent producer can continue.
        assert append_some(handle, handle.end_offset // 2, 3) == 3
        check_log(handle, acknowledged + 3)
        manager.close()
        assert not disk.is_dead


def cut_while(change: Callable[[PartitionHandle], object], settings: LogSettings = SYNCED) -> Iterator[PartitionHandle]:
    """Makes a log of 25 batches and changes it, with a power cut at each operation of the change. Yields the loaded
    log. The disk can keep any of the renames."""
    first = last = 0
    cut = -1
    while cut <= last:
        disk = new_disk()
        manager, handle = start(disk, settings)
        assert append_some(handle, 0, 25) == 25
        if cut < 0:
            first, cut = disk.operations, disk.operations - 1
        disk.cut_power_at(cut if cut >= first else -1)
        with contextlib.suppress(OSError):
            change(handle)
        last = max(last, disk.operations) if cut < first else last
        manager.close()
        del manager, handle
        if disk.is_dead:
            disk.restart(SEED * 1000 + cut, ordered=False)
            manager, handle = start(disk, settings)
            yield handle
            manager.close()
        cut += 1


@pytest.mark.parametrize("missing", [["timeindex"], ["timeindex", "txnindex", "index"]])
@pytest.mark.parametrize("seed", range(1, 9))
def test_aborted_records_stay_aborted_when_the_power_fails_while_indexes_are_rebuilt(
    seed: int, missing: list[str]
) -> None:
    cut = died = 0
    while died >= cut:
        disk = new_disk()
        write_aborted_log(disk.environment(), "/data")
        for suffix in missing:
            disk.unlink(f"/data/t-0/{0:020d}.{suffix}")
        disk.sync_directory("/data/t-0")
        disk.cut_power_at(disk.operations + cut)
        handle = PartitionHandle(LogDirectory(disk.environment(), "/data"), "t", 0, None, UNSYNCED)
        with contextlib.suppress(OSError):
            log_loader.load(handle, "/data/t-0", clean=True, recovery_point=8, files=disk)
        died += disk.is_dead
        disk.cut_power()
        disk.restart(seed * 1000 + cut, ordered=seed < 3)
        handle = PartitionHandle(LogDirectory(disk.environment(), "/data"), "t", 0, None, UNSYNCED)
        log_loader.load(handle, "/data/t-0", clean=False, recovery_point=8, files=disk)
        handle.become_leader(1, 1)
        assert handle.read(0, isolation=READ_COMMITTED).aborted == [(7, 0)]
        assert handle.read(3, isolation=READ_COMMITTED).aborted == [(7, 3)]
        cut += 1
    assert died > 5


def test_retention_deletes_the_first_segments_first() -> None:
    ends = set()
    for handle in cut_while(lambda handle: handle.delete_records(handle.end_offset - 4)):
        check_log(handle, 25)
        ends.add(handle.log_start_offset)
    assert len(ends) > 1  # the disk decides which of the intermediate start offsets occur


def test_retention_deletes_the_first_segments_first_when_it_deletes_twice() -> None:
    def change(handle: PartitionHandle) -> None:
        for offset in (16, handle.end_offset - 4):
            handle.delete_records(offset)

    for handle in cut_while(change):
        check_log(handle, 25)


def test_truncation_deletes_the_last_segments_first() -> None:
    ends = set()
    for handle in cut_while(lambda handle: handle.truncate_to(4)):
        check_log(handle, 2)
        ends.add(handle.end_offset)
    assert len(ends) > 2


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("end", [4, 10, 14])
def test_truncated_records_do_not_return_behind_their_successors_after_a_power_cut(end: int, ordered: bool) -> None:
    """Truncates the log, appends, and cuts the power. Only the truncation itself was synced."""
    for seed in range(20):
        disk = new_disk()
        manager, handle = start(disk)
        assert append_some(handle, 0, 25) == 25
        handle.truncate_to(end)
        handle.configure(UNSYNCED)
        successors = [batch(1000 + number) for number in range(3)]
        for number, successor in enumerate(successors):
            plain = RecordBatchBuilder()
            for record in next(iter(Batches(successor))):
                plain.append(timestamp=1_700_000_000_000, key=b"new %d" % number, value=record.value)
            assert handle.append(plain.build()).error == 0
        disk.cut_power()
        manager.close()
        del manager, handle
        disk.restart(SEED * 1000 + seed, ordered)
        manager, handle = start(disk)
        keys = [record.key for one in Batches(handle.read(0, 1 << 20, isolation=3).records) for record in one]
        assert all(key.startswith(b"new ") for key in keys[end:]), f"seed {seed}: {keys[end:]}"
        assert handle.end_offset >= end
        manager.close()


def test_roll_syncs_the_sealed_segment_without_a_flush() -> None:
    disk = new_disk()
    manager, handle = start(disk, UNSYNCED)
    number = 0
    while len(handle.segments()) < 3:
        assert handle.append(batch(number)).error == 0
        number += 1
    sealed_end = handle.segments()[-1].base_offset
    watch = PartitionWatch()
    if watch.arm("sealed", handle, UNTIL_SYNCED, sealed_end):
        assert select.select([watch.fileno()], [], [], 10)[0], "the sealed segment was not synced in time"
    watch.close()
    assert handle.synced_offset >= sealed_end
    disk.cut_power()
    manager.close()
    del manager, handle
    disk.restart(SEED)
    manager, handle = start(disk, UNSYNCED)
    check_log(handle, sealed_end // 2)
    manager.close()


def test_start_recovers_after_a_power_cut_during_recovery() -> None:
    for cut in range(40):
        disk = new_disk()
        manager, handle = start(disk)
        acknowledged = append_some(handle, 0, 20)
        disk.cut_power()
        manager.close()
        disk.restart(11 + cut)
        disk.cut_power_at(disk.operations + cut)
        manager = LogManager(disk.environment(), ["/data"], lambda topic: SYNCED, files=disk)
        manager.load()
        disk.cut_power()
        manager.close()
        disk.restart(1_000 - cut)
        manager, handle = start(disk)
        check_log(handle, acknowledged)
        manager.close()


def test_recovered_records_are_readable_without_an_append() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 5) == 5
    disk.cut_power()
    manager.close()
    disk.restart()
    manager, handle = start(disk)
    assert handle.flush(10_000)
    assert handle.high_watermark == handle.end_offset == 10
    manager.close()


def test_recovery_drops_the_segments_behind_one_that_lost_its_end() -> None:
    disk = new_disk()
    manager, handle = start(disk, UNSYNCED)
    for number in range(25):
        assert handle.append(batch(number)).error == 0
    bases = [info.base_offset for info in handle.segments()]
    assert len(bases) > 3
    handle.flush()
    disk.cut_power()
    manager.close()
    disk.restart()
    disk.write(f"/data/orders-0/{bases[1]:020}.log", b"")  # an empty file, which also ends with a whole batch
    manager, handle = start(disk, UNSYNCED)
    assert handle.end_offset == bases[1]
    check_log(handle, 0)
    assert handle.append(batch(handle.end_offset // 2)).error == 0
    assert handle.flush(10_000)
    disk.cut_power()
    manager.close()
    disk.restart(1)
    manager, handle = start(disk, UNSYNCED)
    # The dropped records do not reappear after the records that replaced them.
    check_log(handle, 0)
    manager.close()


def test_log_refuses_appends_and_keeps_acknowledged_batches_when_the_disk_is_full() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 5) == 5
    disk.limit(disk_bytes(disk) + 100)
    assert handle.append(batch(5)).error == KAFKA_STORAGE_ERROR
    manager.check_directories()
    assert handle.read(0).error == KAFKA_STORAGE_ERROR
    manager.close()
    del manager, handle
    disk.limit(None)
    manager, handle = start(disk)
    check_log(handle, 5)
    assert handle.end_offset == 10
    assert append_some(handle, 5, 1) == 1
    manager.close()


def disk_bytes(disk: SimulatedDisk) -> int:
    def walk(path: str) -> Iterator[int]:
        for name in disk.list(path):
            below = f"{path}/{name}"
            if disk.is_directory(below):
                yield from walk(below)
            else:
                yield len(disk.read(below))

    return sum(walk("/data"))


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_disk_error_takes_the_directory_offline_and_wakes_waiting_appends(kind: str) -> None:
    disk = new_disk()
    failed: list[str] = []
    manager = LogManager(disk.environment(), ["/data"], lambda topic: SYNCED, files=disk, on_failure=failed.append)
    manager.load()
    (handle,) = manager.create("orders", TOPIC_ID, [0])
    handle.become_leader(1, 0)
    assert append_some(handle, 0, 3) == 3
    disk.fail(kind, errno.EIO)
    assert append_some(handle, 3, 1) == 0  # the append returns, but it is not acknowledged
    assert handle.directory.offline_errno == errno.EIO
    manager.check_directories()
    assert failed == ["/data"]
    disk.fail(kind, 0)
    assert handle.append(batch(4)).error == KAFKA_STORAGE_ERROR  # the log does not retry after a failed sync
    manager.close()


def test_first_append_is_refused_when_its_files_cannot_be_created() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    disk.fail("names", errno.EROFS)
    assert handle.append(batch(0)).error == KAFKA_STORAGE_ERROR
    assert handle.end_offset == 0
    manager.close()


def test_indexes_and_snapshots_of_sealed_segments_survive_a_power_cut() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 25) == 25
    bases = [segment.base_offset for segment in handle.segments()]
    wanted = [f"{base:020d}.{suffix}" for base in bases[:-1] for suffix in ("index", "timeindex")]
    wanted += [f"{base:020d}.snapshot" for base in bases[1:]]
    before = {name: disk.read(f"/data/orders-0/{name}") for name in wanted}
    assert len(bases) > 3
    assert all(before.values())
    disk.cut_power()
    manager.close()
    disk.restart(seed=5)
    assert {name: disk.read(f"/data/orders-0/{name}") for name in wanted} == before


def test_recovery_point_stays_before_a_segment_when_its_indexes_are_not_synced() -> None:
    disk = new_disk()
    _, handle = start(disk, LogSettings(segment_bytes=2 * len(batch(0))))
    for number in range(2):
        assert handle.append(batch(number)).error == 0
    assert handle.flush()
    assert handle.recovery_point == 4
    disk.fail("sync", errno.EIO)
    handle.append(batch(2))  # this batch comes after a roll
    assert (len(handle.segments()), handle.synced_offset, handle.recovery_point) == (2, 4, 0)


def test_recovery_point_follows_a_roll() -> None:
    _, handle = start(new_disk(), LogSettings(segment_bytes=2 * len(batch(0))))
    for number in range(5):
        assert handle.append(batch(number)).error == 0
        assert handle.flush()
        assert handle.recovery_point == 2 * number + 2


# --- truncation below the recovery point ---


def checkpointed(disk: SimulatedDisk) -> int:
    """Returns the recovery point of the log on the disk, or 0 if the disk has none."""
    return OffsetCheckpoint("/data", RECOVERY_POINT, disk).read().get(("orders", 0), 0)


def plain_batch(number: int) -> bytes:
    builder = RecordBatchBuilder()
    for i in range(2):
        builder.append(timestamp=1_700_000_000_000, key=b"new %d" % number, value=b"%d" % i * 80)
    return builder.build()


def test_log_takes_no_append_after_a_truncation_until_its_recovery_point_is_lowered() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 25) == 25
    manager.checkpoint_recovery_points()
    assert checkpointed(disk) == 50
    manager.await_cuts(True)
    handle.truncate_to(10)
    assert handle.awaits_checkpoint
    assert handle.append_now(bytearray(plain_batch(0))) is None
    assert (handle.end_offset, checkpointed(disk)) == (10, 50)
    assert manager.checkpoint_cuts()
    assert not handle.awaits_checkpoint
    assert checkpointed(disk) <= 10
    assert handle.append(plain_batch(0)).error == 0
    manager.close()


@pytest.mark.parametrize(("end", "waits"), [(10, True), (20, False), (24, False)])
def test_truncation_waits_only_below_the_recovery_point_on_disk(end: int, waits: bool) -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 10) == 10
    manager.checkpoint_recovery_points()
    assert append_some(handle, 10, 5) == 5
    manager.await_cuts(True)
    handle.truncate_to(end)
    assert handle.awaits_checkpoint == waits
    manager.close()
    assert checkpointed(disk) <= end


@pytest.mark.parametrize("offset", [0, 7, 100])
def test_log_that_begins_anew_waits_below_its_recovery_point_too(offset: int) -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 25) == 25
    manager.checkpoint_recovery_points()
    manager.await_cuts(True)
    handle.truncate_fully(offset)
    assert handle.awaits_checkpoint == (offset < 50)
    manager.close()


def test_empty_log_that_begins_anew_waits_below_its_recovery_point_too() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 25) == 25
    manager.close()
    OffsetCheckpoint("/data", LOG_START_OFFSET, disk).write({("orders", 0): 100})
    manager, handle = start(disk)
    assert (handle.state, handle.end_offset) == ("lazy", 100)
    manager.await_cuts(True)
    handle.truncate_fully(7)
    assert handle.awaits_checkpoint
    manager.checkpoint_cuts()
    assert append_some(handle, 0, 1) == 1
    assert (handle.log_start_offset, handle.end_offset) == (7, 9)
    manager.close()


@pytest.mark.parametrize("settings", [SYNCED, UNSYNCED], ids=["synced", "unsynced"])
def test_records_survive_a_power_cut_after_a_log_began_anew_below_its_checkpointed_start(settings: LogSettings) -> None:
    """If the checkpoint still had the former start of the log, the load would remove the records below that start."""
    disk = new_disk()
    manager, handle = start(disk, settings)
    assert append_some(handle, 0, 25) == 25
    assert handle.drop_below(40) == 0
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    manager.await_cuts(True)
    handle.truncate_fully(7)
    assert handle.awaits_checkpoint
    manager.checkpoint_cuts()
    handle.configure(SYNCED)
    assert append_some(handle, 0, 1) == 1
    disk.cut_power()
    manager.close()
    disk.restart(SEED, ordered=False)
    manager, handle = start(disk)
    assert (handle.log_start_offset, handle.end_offset) == (7, 9)
    manager.close()


def test_new_log_that_begins_above_offset_0_keeps_its_start_after_a_power_cut_at_any_operation() -> None:
    cut, last = -1, 0
    while cut <= last:
        disk = new_disk()
        manager, handle = start(disk)
        first = disk.operations
        disk.cut_power_at(cut if cut >= 0 else -1)
        handle.become_follower(2, 10, 10)
        is_kept = handle.restart_as_follower(6, 10) == 0 and not disk.is_dead
        if cut < 0:
            cut, last = first - 1, disk.operations
        disk.cut_power()
        manager.close()
        disk.restart(SEED * 1000 + cut, ordered=False)
        manager, handle = start(disk)
        assert handle.end_offset in ((6,) if is_kept else (0, 6))
        assert append_some(handle, 0, 1) == 1
        manager.close()
        cut += 1


def test_recovery_point_covers_no_unsynced_record_after_a_power_cut_at_any_operation() -> None:
    """Truncates, checkpoints, and appends without a sync. The power fails at each operation in turn."""
    cut, last, seen = -1, 0, set()
    while cut <= last:
        disk = new_disk()
        manager, handle = start(disk)
        assert append_some(handle, 0, 25) == 25
        manager.checkpoint_recovery_points()
        manager.await_cuts(True)
        handle.configure(UNSYNCED)
        first = disk.operations
        disk.cut_power_at(cut if cut >= 0 else -1)
        with contextlib.suppress(OSError):
            handle.truncate_to(10)
            manager.checkpoint_cuts()
            for number in range(6):
                assert handle.append(plain_batch(number)).error in (0, KAFKA_STORAGE_ERROR)
        if cut < 0:
            cut, last = first - 1, disk.operations
        manager.close(clean=False)
        del manager, handle
        if disk.is_dead:
            disk.restart(SEED * 1000 + cut, ordered=False)
            sound = checkpointed(disk)
            manager, handle = start(disk, UNSYNCED)
            keys = [record.key for one in Batches(handle.read(0, 1 << 20, isolation=3).records) for record in one]
            grew = any(key.startswith(b"new ") for key in keys)
            assert not grew or sound <= 10
            seen.add(grew)
            manager.close()
        cut += 1
    assert seen == {False, True}


def test_log_that_waits_for_a_checkpoint_can_be_deleted() -> None:
    disk = new_disk()
    manager, handle = start(disk)
    assert append_some(handle, 0, 25) == 25
    manager.checkpoint_recovery_points()
    manager.await_cuts(True)
    handle.truncate_to(10)
    manager.delete([("orders", 0)])
    assert manager.checkpoint_cuts()
    assert checkpointed(disk) == 0
    manager.close()
