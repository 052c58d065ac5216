"""A real disk that fills up and fails on order, under a log."""

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


def test_without_faults_its_files_are_where_they_are_named(world, tmp_path: Path) -> None:
    disk, _, handle = world
    data = batch(10)
    assert handle.append(data).error == 0
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size == len(data)
    assert disk.hits == 0


def test_a_write_beyond_the_room_that_is_left_fails(world) -> None:
    disk, directory, handle = world
    assert handle.append(batch(10)).error == 0
    disk.limit(20_000)
    assert handle.append(batch(10_000)).error == 0
    assert handle.append(batch(10_000)).error == KAFKA_STORAGE_ERROR
    assert directory.offline_errno == errno.ENOSPC
    assert disk.hits == 1


@pytest.mark.parametrize(("kind", "error"), [("write", errno.EIO), ("names", errno.EROFS)])
def test_operations_of_a_kind_fail_with_what_was_ordered(world, kind: str, error: int) -> None:
    disk, directory, handle = world
    disk.fail(kind, error)
    assert handle.append(batch(10)).error == KAFKA_STORAGE_ERROR
    assert directory.offline_errno == error
    assert disk.hits >= 1


def test_a_sync_that_fails_takes_the_directory_offline(world) -> None:
    disk, directory, handle = world
    assert handle.append(batch(10)).error == 0
    disk.fail("sync", errno.EIO)
    assert not handle.flush()
    assert directory.offline_errno == errno.EIO


def test_a_fault_that_was_taken_back_is_none(world) -> None:
    disk, _, handle = world
    for kind in ("read", "write", "sync", "names"):
        disk.fail(kind, errno.EIO)
        disk.fail(kind, 0)
    disk.limit(0)
    disk.limit(None)
    assert handle.append(batch(10)).error == 0
    assert handle.read(0).error == 0
    assert disk.hits == 0


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="read, write, sync, names, not to 'smile'"):
        FaultDisk().fail("smile", errno.EIO)
