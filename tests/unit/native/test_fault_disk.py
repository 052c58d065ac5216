"""A log on a real disk that becomes full or fails when the test says so."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.fault_disk import FaultDisk

KAFKA_STORAGE_ERROR = 56


def batch(size_bytes: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(0, None, b"x" * size_bytes)
    return builder.build()


@pytest.fixture
def world(tmp_path: Path):
    disk = FaultDisk()
    directory = LogDirectory(disk.environment(), str(tmp_path))
    handle = PartitionHandle(directory, "t", 0, Uuid.random())
    handle.become_leader(1, 0)
    yield disk, directory, handle
    handle.close()
    directory.close()


def test_fault_disk_writes_real_files_when_no_fault_is_ordered(world, tmp_path: Path) -> None:
    disk, _, handle = world
    data = batch(10)
    assert handle.append(data).error == 0
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size == len(data)
    assert disk.hits == 0


def test_write_fails_when_it_exceeds_the_room_left(world) -> None:
    disk, directory, handle = world
    assert handle.append(batch(10)).error == 0
    disk.limit(20_000)
    assert handle.append(batch(10_000)).error == 0
    assert handle.append(batch(10_000)).error == KAFKA_STORAGE_ERROR
    assert directory.offline_errno == errno.ENOSPC
    assert disk.hits == 1


@pytest.mark.parametrize(("kind", "error"), [("write", errno.EIO), ("names", errno.EROFS)])
def test_operations_of_a_kind_fail_with_the_ordered_error(world, kind: str, error: int) -> None:
    disk, directory, handle = world
    disk.fail(kind, error)
    assert handle.append(batch(10)).error == KAFKA_STORAGE_ERROR
    assert directory.offline_errno == error
    assert disk.hits >= 1


def test_directory_goes_offline_when_a_sync_fails(world) -> None:
    disk, directory, handle = world
    assert handle.append(batch(10)).error == 0
    disk.fail("sync", errno.EIO)
    assert not handle.flush()
    assert directory.offline_errno == errno.EIO


def test_operations_succeed_when_the_fault_is_withdrawn(world) -> None:
    disk, _, handle = world
    for kind in ("read", "write", "sync", "names"):
        disk.fail(kind, errno.EIO)
        disk.fail(kind, 0)
    disk.limit(0)
    disk.limit(None)
    assert handle.append(batch(10)).error == 0
    assert handle.read(0).error == 0
    assert disk.hits == 0


def test_fault_disk_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="read, write, sync, names, not to 'smile'"):
        FaultDisk().fail("smile", errno.EIO)
