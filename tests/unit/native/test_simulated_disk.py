"""Faults of the simulated disk: failed syncs, corrupted bytes, random failures and durations. Other tests cover power
cuts."""

import errno

import pytest

from kafkacore._fast.world.agenda import SimulatedAgenda
from kafkacore._fast.world.simulated_disk import SimulatedDisk

SEEDS = range(40)
SYNCED = b"synced"


def written(seed: int) -> SimulatedDisk:
    """Returns a disk with the file `/d/f`, whose first bytes are synced."""
    disk = SimulatedDisk(seed)
    disk.make_directories("/d")
    disk.write("/d/f", SYNCED)
    disk.sync_directory("/d")
    return disk


def test_file_reads_whole_and_in_parts() -> None:
    disk = written(0)
    disk.write_part("/d/f", 3, b"x" * 100_000)
    assert disk.size("/d/f") == 100_003
    assert disk.read_part("/d/f", 2, 3) == b"nxx"
    assert disk.read_part("/d/f", 100_000, 50) == b"xxx"
    assert disk.read_part("/d/f", 200_000, 50) == b""


def test_later_sync_saves_nothing_that_a_failed_one_has_lost() -> None:
    lost = set()
    for seed in SEEDS:
        disk = written(seed)
        disk.write_part("/d/f", len(SYNCED), b"more")
        disk.fail("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.sync("/d/f")
        disk.fail("sync", 0)
        assert disk.read("/d/f") == SYNCED + b"more"  # the page cache still has the unsynced bytes
        disk.sync("/d/f")
        disk.cut_power()
        disk.restart(seed)
        assert disk.read("/d/f").startswith(SYNCED)
        lost.add(disk.read("/d/f") != SYNCED + b"more")
    assert lost == {False, True}


def test_sync_saves_every_write_and_truncation_before_it() -> None:
    for seed in SEEDS:
        disk = written(seed)
        disk.write_part("/d/f", 2, b"123456789")
        disk.write_part("/d/f", 4, b"abc")
        disk.sync("/d/f")
        disk.cut_power()
        disk.restart(seed)
        assert disk.read("/d/f") == b"sy12abc"


def test_rot_changes_one_bit_for_good_when_a_read_meets_it() -> None:
    disk = written(1)
    disk.rot(1.0)
    found = disk.read("/d/f")
    disk.rot(0.0)
    changed = [one ^ two for one, two in zip(found, SYNCED, strict=True) if one != two]
    assert len(changed) == 1
    assert changed[0].bit_count() == 1
    assert disk.read("/d/f") == found
    disk.cut_power()
    disk.restart()
    assert disk.read("/d/f") == found


def test_share_of_the_operations_fails_when_a_share_is_ordered() -> None:
    disk = written(1)
    disk.fail("sync", errno.EIO, share=0.25)
    failed = 0
    for _ in range(400):
        try:
            disk.sync("/d/f")
        except OSError:
            failed += 1
    assert 60 < failed < 140


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_share_outside_of_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        SimulatedDisk().rot(share)
    with pytest.raises(ValueError, match="from 0 to 1"):
        SimulatedDisk().fail("read", share=share)


def test_unknown_kind_of_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="names"):
        SimulatedDisk().pace("dance", 1)
    with pytest.raises(ValueError, match="from 0 to most_us"):
        SimulatedDisk().pace("sync", 5, 4)


def test_time_of_python_files_is_counted_and_not_slept_in_a_simulated_world() -> None:
    disk = SimulatedDisk(5)
    disk.environment(None, SimulatedAgenda())
    disk.make_directories("/d")
    disk.pace("sync", 3_600_000_000)  # one hour
    disk.write("/d/f", b"x")
    assert disk.take_spent_ns() == 3_600_000_000_000
    assert disk.take_spent_ns() == 0
    disk.pace("sync", 10, 20)
    spent = []
    for _ in range(50):
        disk.sync("/d/f")
        spent.append(disk.take_spent_ns())
    assert 10_000 <= min(spent) < 12_000
    assert 18_000 < max(spent) <= 20_000
