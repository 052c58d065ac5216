"""A simulated disk reports which bytes of a file are certain to survive a power cut."""

from __future__ import annotations

import pytest

from kafkacore._fast.world.simulated_disk import SimulatedDisk


def test_disk_names_the_synced_bytes_when_more_was_written() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/a")
    disk.write("/a/file", b"one")
    with pytest.raises(FileNotFoundError):
        disk.synced("/a/file")
    disk.sync("/a/file")
    disk.sync_directory("/")
    disk.sync_directory("/a")
    disk.write_part("/a/file", 3, b"two")
    assert (disk.synced("/a/file"), disk.read("/a/file")) == (b"one", b"onetwo")
