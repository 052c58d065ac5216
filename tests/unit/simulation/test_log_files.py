"""The checkers read a log on a simulated disk. Their view follows appends, truncations, new files and snapshots."""

from __future__ import annotations

import pytest

from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.raft.control import data_batch
from kafkacore.simulation.log_files import LogFiles

LOG = "/data/log"
FIRST = f"{LOG}/{0:020}.log"


def batch(base: int, epoch: int) -> bytes:
    made = data_batch([b"value %d" % base], base, epoch, 0)
    assert made is not None
    return made


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.make_directories(LOG)
    return made


def test_log_names_the_offset_from_which_it_changed_when_batches_come_and_go(disk: SimulatedDisk) -> None:
    files = LogFiles(disk, LOG)
    assert (files.read(), files.end) == (None, 0)
    disk.write(FIRST, batch(0, 1) + batch(1, 1) + batch(2, 1))
    assert (files.read(), files.end, files.read()) == (0, 3, None)
    disk.write(FIRST, batch(0, 1) + batch(1, 2))
    assert (files.read(), files.end) == (1, 2)
    assert [entry.epoch for entry in files.entries_from(1)] == [2]
    assert (files.epoch_before(1), files.epoch_before(2)) == (1, 2)
    whole = batch(0, 1) + batch(1, 2) + batch(2, 2)
    disk.write_part(FIRST, len(whole) - len(batch(2, 2)), batch(2, 2)[:-5])
    assert (files.read(), files.end) == (None, 2)
    disk.write(FIRST, whole)
    assert (files.read(), files.end) == (2, 3)


def test_log_names_the_offset_of_a_batch_when_only_its_leader_epoch_has_changed(disk: SimulatedDisk) -> None:
    """An earlier leader did not commit a producer's batch, and a new leader has appended this batch again."""

    def long(base: int, epoch: int) -> bytes:
        made = data_batch([b"v" * 1000], base, epoch, 0)
        assert made is not None
        return made

    files = LogFiles(disk, LOG)
    disk.write(FIRST, long(0, 1) + long(1, 1))
    files.read()
    disk.write(FIRST, long(0, 1) + long(1, 2) + long(2, 2))
    assert (files.read(), files.end) == (1, 3)


def test_log_begins_at_the_snapshot_when_its_files_are_gone(disk: SimulatedDisk) -> None:
    files = LogFiles(disk, LOG)
    disk.write(FIRST, batch(0, 1) + batch(1, 1))
    files.read()
    disk.unlink(FIRST)
    disk.write(f"{LOG}/{9:020}.log", b"")
    disk.write(f"{LOG}/{9:020}-{4:010}.checkpoint", b"")
    assert (files.read(), files.start, files.end, files.epoch_before(9)) == (9, 9, 9, 4)


def test_synced_end_leaves_out_what_a_power_cut_would_take(disk: SimulatedDisk) -> None:
    files = LogFiles(disk, LOG)
    for name in ("/", "/data"):
        disk.sync_directory(name)
    disk.write(FIRST, batch(0, 1))
    assert files.synced_end() == 0
    disk.sync(FIRST)
    disk.sync_directory(LOG)
    disk.write_part(FIRST, len(batch(0, 1)), batch(1, 1))
    assert files.synced_end() == 1
    disk.sync(FIRST)
    assert files.synced_end() == 2
