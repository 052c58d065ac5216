"""Compaction on a simulated disk whose power goes out under every single operation: a start finds the log as it was, or
as it became."""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable

import pytest

from compacting import ABORT, COMMIT, compact, read_log
from kafkacore._fast.batch import RecordBatchBuilder
from kafkacore._fast.compaction import CompactionCancelled
from kafkacore._fast.log_settings import LogSettings
from kafkacore._fast.partition_handle import PartitionHandle
from kafkacore._fast.simdisk import SimulatedDisk
from kafkacore._fast.uuid import Uuid
from kafkacore.storage.log_manager import LogManager
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
    """A log of several segments with aborted and committed transactions, all of it synced."""
    disk.make_directories("/data")
    disk.sync_directory("/")
    manager, handle = start(disk)
    offset = 0
    for number in range(16):
        assert handle.append_as_follower(batch(number, offset, True), 9).error == 0
        offset += 2
        if number % 3 == 2:
            kind = ABORT if number % 2 else COMMIT
            assert handle.append_as_follower(marker(offset, 5, kind), 9).error == 0
            offset += 1
    assert handle.append_as_follower(marker(offset, 5, COMMIT), 9).error == 0
    assert handle.flush(10_000)
    return manager, handle


def contents(handle: PartitionHandle) -> tuple[object, ...]:
    """What readers of either isolation see, and what the next cleaning does."""
    committed = handle.read(handle.log_start_offset, 1 << 20, isolation=1)
    return read_log(handle), committed.aborted, handle.end_offset


def two_rounds(handle: PartitionHandle, swapped: Callable[[], None]) -> None:
    bases = [segment.base_offset for segment in handle.segments()]
    middle = bases[len(bases) // 2]
    compact(handle, 0, middle, NOW, 1000, swapped=swapped)
    compact(handle, middle, bases[-1], NOW + 5000, 1000, swapped=swapped)


@pytest.fixture(scope="module")
def reference() -> tuple[int, int, list[object]]:
    """The operations between which the log is compacted, and what it is before and after each group."""
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


@pytest.mark.parametrize("seed", [1, 2])
def test_every_group_is_as_it_was_or_as_it_became(reference: tuple[int, int, list[object]], seed: int) -> None:
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
        disk.restart(seed * 1000 + cut)
        manager, handle = start(disk)
        found = contents(handle)
        assert found in states[len(done) : len(done) + 2], (cut, len(done))
        left = {name.rpartition(".")[2] for name in disk.list("/data/orders-0")}
        assert not left & {"cleaned", "swap", "deleted"}
        # It goes on: the rest is compacted, and its producer appends.
        two_rounds(handle, lambda: None)
        assert handle.append(batch(16, 0, False), acks=-1).error == 0  # its sequence is known
        manager.close()
        assert not disk.is_dead


def test_a_disk_that_fails_leaves_the_log_to_readers_who_have_it(reference: tuple[int, int, list[object]]) -> None:
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


def test_a_full_disk_ends_a_compaction_and_takes_nothing_along(reference: tuple[int, int, list[object]]) -> None:
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
