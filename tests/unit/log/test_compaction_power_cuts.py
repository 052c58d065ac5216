"""Compaction on a simulated disk whose power fails at each single operation. After the restart, the log is either
unchanged or compacted."""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable

import pytest

from compacting import ABORT, COMMIT, compact, read_log
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.compact.compaction import CompactionCancelled
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage import log_loader
from kafkacore.storage.log_manager import LogManager
from seeds import SEED
from transactions import marker

NOW = 1_700_000_000_000
TOPIC_ID = Uuid.random()
SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=100, flush_messages=1, compact_policy=True)


def start(disk: SimulatedDisk) -> tuple[LogManager, PartitionHandle]:
    manager = LogManager(disk.environment(), ["/data"], lambda topic: SETTINGS, files=disk)
    manager.load()
    (handle,) = manager.create("orders", TOPIC_ID, [0])
    handle.become_leader(1, handle.leader_epoch + 1 + (handle.leader_epochs() or [(0, 0)])[-1][0])
    return manager, handle


def batch(number: int, offset: int, transactional: bool) -> bytes:
    ids = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2 * number}
    builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=0, transactional=transactional, **ids)
    for i in range(2):
        builder.append(NOW + number, b"%d" % ((number + i) % 4), None if number % 5 == 4 else b"%d" % number * 30)
    return builder.build()


def written(disk: SimulatedDisk) -> tuple[LogManager, PartitionHandle]:
    """Returns a log of several segments with aborted and committed transactions. All of it is synced."""
    disk.make_directories("/data")
    disk.sync_directory("/")
    manager, handle = start(disk)
    offset = 0
    for number in range(16):
        assert handle.append_replicated(batch(number, offset, True), 9).error == 0
        offset += 2
        if number % 3 == 2:
            kind = ABORT if number % 2 else COMMIT
            assert handle.append_replicated(marker(offset, 5, kind), 9).error == 0
            offset += 1
    assert handle.append_replicated(marker(offset, 5, COMMIT), 9).error == 0
    assert handle.flush(10_000)
    return manager, handle


def contents(handle: PartitionHandle) -> tuple[object, ...]:
    """Returns the records that readers see at either isolation level, and the result of the next cleaning."""
    committed = handle.read(handle.log_start_offset, 1 << 20, isolation=1)
    return read_log(handle), committed.aborted, handle.end_offset


def two_rounds(handle: PartitionHandle, swapped: Callable[[], None]) -> None:
    bases = [segment.base_offset for segment in handle.segments()]
    middle = bases[len(bases) // 2]
    compact(handle, 0, middle, NOW, 1000, swapped=swapped)
    compact(handle, middle, bases[-1], NOW + 5000, 1000, swapped=swapped)


@pytest.fixture(scope="module")
def reference() -> tuple[int, int, list[object]]:
    """Returns the numbers of the first and the last disk operation of the compaction, and the state of the log before
    and after each group of segments."""
    disk = SimulatedDisk()
    manager, handle = written(disk)
    first = disk.operations
    states: list[object] = [contents(handle)]
    two_rounds(handle, lambda: states.append(contents(handle)))
    last = disk.operations
    manager.close()
    assert len(states) > 5
    assert len({len(state[0]) for state in states}) > 4  # type: ignore[index]
    return first, last, states


@pytest.mark.parametrize("ordered", [True, False], ids=["a journal of names", "names in any order"])
def test_compaction_changes_a_group_of_segments_wholly_or_not_at_all_when_the_power_is_cut(
    reference: tuple[int, int, list[object]], ordered: bool
) -> None:
    first, last, states = reference
    for cut in range(first, last + 1):
        disk = SimulatedDisk()
        manager, handle = written(disk)
        done: list[int] = []
        disk.cut_power_at(cut)
        with contextlib.suppress(OSError, CompactionCancelled):
            two_rounds(handle, functools.partial(done.append, 1))
        manager.close()
        del manager, handle
        disk.restart(SEED * 1000 + cut, ordered)
        manager, handle = start(disk)
        found = contents(handle)
        assert found in states[len(done) : len(done) + 2], (cut, len(done))
        left = {name.rpartition(".")[2] for name in disk.list("/data/orders-0")}
        assert not left & {"cleaned", "swap", "deleted"}
        # The log is still usable: the cleaner compacts the rest, and a producer can append.
        two_rounds(handle, lambda: None)
        # The log still knows the producer's last sequence number.
        assert handle.append(batch(16, 0, False), acks=-1).error == 0
        manager.close()
        assert not disk.is_dead


def test_readers_keep_their_log_when_the_disk_fails(reference: tuple[int, int, list[object]]) -> None:
    disk = SimulatedDisk()
    manager, handle = written(disk)
    disk.fail("names", errno.EIO, after=6)
    with pytest.raises(OSError, match="compacting orders-0"):
        two_rounds(handle, lambda: None)
    assert handle.directory.offline_errno == errno.EIO
    manager.close()
    disk.fail("names", 0)
    manager, handle = start(disk)
    assert contents(handle) in reference[2]
    manager.close()


def test_compaction_ends_without_loss_when_the_disk_is_full(reference: tuple[int, int, list[object]]) -> None:
    disk = SimulatedDisk()
    manager, handle = written(disk)
    disk.limit(sum(disk.size(f"/data/orders-0/{name}") for name in disk.list("/data/orders-0")))
    with pytest.raises(OSError, match="No space left"):
        two_rounds(handle, lambda: None)
    assert handle.directory.offline_errno == 0
    assert contents(handle) == reference[2][0]
    assert not [name for name in disk.list("/data/orders-0") if name.endswith(".cleaned")]
    disk.limit(None)
    two_rounds(handle, lambda: None)
    assert contents(handle) == reference[2][-1]
    manager.close()


def test_compaction_deletes_the_first_empty_segments_first() -> None:
    """The compacted segment ends before these segments, so the node cannot know after a restart that the compaction
    replaced them. The cleaner never deletes a later record of a key before the earlier ones."""

    def of_one_key() -> tuple[SimulatedDisk, LogManager, PartitionHandle]:
        disk = SimulatedDisk()
        disk.make_directories("/data")
        disk.sync_directory("/")
        manager, handle = start(disk)
        for number, key in enumerate([b"kept"] + [b"again"] * 24):
            builder = RecordBatchBuilder(base_offset=number, partition_leader_epoch=0)
            builder.append(NOW + number, key, b"%d" % number * 80)
            assert handle.append_replicated(builder.build(), 9).error == 0
        assert handle.flush(10_000)
        return disk, manager, handle

    def values(handle: PartitionHandle) -> list[int]:
        return [record[0] for batch in read_log(handle) for record in batch.records]

    def only_round(handle: PartitionHandle) -> None:
        bases = [segment.base_offset for segment in handle.segments()]
        handle.configure(LogSettings(segment_bytes=4000, index_interval_bytes=100, compact_policy=True))
        compact(handle, 0, bases[-1], NOW, 1000)

    disk, manager, handle = of_one_key()
    bases = [segment.base_offset for segment in handle.segments()]
    assert len(bases) > 4
    first = disk.operations
    only_round(handle)
    last = disk.operations
    assert values(handle) == [0, *range(bases[-1] - 1, 25)]
    manager.close()
    found_between = 0
    for cut in range(first, last + 1):
        disk, manager, handle = of_one_key()
        disk.cut_power_at(cut)
        with contextlib.suppress(OSError, CompactionCancelled):
            only_round(handle)
        manager.close()
        del manager, handle
        disk.restart(SEED * 1000 + cut, ordered=False)
        manager, handle = start(disk)
        offsets = values(handle)
        assert offsets[0] == 0
        assert offsets[1:] == list(range(offsets[1], 25)), cut
        found_between += bases[1] < offsets[1] < bases[-1]
        manager.close()
    assert found_between


LOG, INDEX, TIME_INDEX, ABORTED = ".log", ".index", ".timeindex", ".txnindex"
FORMER = {0: b"first", 2: b"second"}


@pytest.mark.parametrize(
    ("left", "taken_back"),
    [
        ({LOG: ".swap", INDEX: ".swap", TIME_INDEX: ".swap", ABORTED: ".swap"}, False),
        ({LOG: ".swap", INDEX: ".cleaned", TIME_INDEX: ".swap", ABORTED: ".cleaned"}, True),
        ({LOG: ".cleaned", INDEX: ".swap", TIME_INDEX: ".cleaned", ABORTED: ".swap"}, True),
    ],
    ids=["a swap", "names on their way", "names under way, the records last"],
)
def test_start_gives_the_same_log_when_an_earlier_start_lost_its_power(left: dict[str, str], taken_back: bool) -> None:
    fresh = {part: batch(1, 0, False) if part == LOG else b"new" + part.encode() for part in left}

    def left_by_a_crash() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directories("/log")
        disk.sync_directory("/")
        for base, content in FORMER.items():
            for part in left:
                disk.write(f"/log/{base:020}{part}", content + part.encode())
        for part, suffix in left.items():
            disk.write(f"/log/{0:020}{part}{suffix}", fresh[part])
        disk.sync_directory("/log")
        return disk

    disk = left_by_a_crash()
    first = disk.operations
    log_loader.survey("/log", disk)
    for cut in range(first, disk.operations):
        for number in range(12):
            disk = left_by_a_crash()
            disk.cut_power_at(cut)
            with contextlib.suppress(OSError):
                log_loader.survey("/log", disk)
            disk.cut_power()
            disk.restart(SEED * 1000 + cut * 12 + number, ordered=False)
            log_loader.survey("/log", disk)
            names = set(disk.list("/log"))
            assert {name.rpartition(".")[2] for name in names} <= {"log", "index", "timeindex", "txnindex"}
            # When the log is loaded, it rebuilds all missing indexes except transaction indexes.
            expected = {part: b"first" + part.encode() for part in left} if taken_back else fresh
            for part, content in expected.items():
                if part in (LOG, ABORTED) or f"{0:020}{part}" in names:
                    assert disk.read(f"/log/{0:020}{part}") == content, (cut, number)
            assert (f"{2:020}.log" in names) == (f"{2:020}.txnindex" in names)
