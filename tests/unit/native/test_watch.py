"""An event loop waits for events in partitions, and each wait has a token. The loop receives each token once, and no
wait is left over.
"""

import gc
import select
from pathlib import Path

import pytest

from kafkacore._fast.log import partition_watch as watch
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import PartitionWatch
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk


@pytest.fixture
def partition(tmp_path: Path) -> PartitionHandle:
    made = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "t", 0)
    made.become_leader(1, 0)
    return made


def batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"x")
    return builder.build()


def readable(watching: PartitionWatch, timeout_s: float) -> bool:
    return bool(select.select([watching.fileno()], [], [], timeout_s)[0])


def test_watch_reports_its_token_when_the_high_watermark_passes(partition: PartitionHandle) -> None:
    watching = PartitionWatch()
    assert watching.arm("a", partition, watch.FETCH, 0)
    assert not readable(watching, 0)
    partition.append(batch())
    assert readable(watching, 10)
    assert watching.take() == ["a"]
    assert len(watching) == 0
    assert watching.take() == []
    assert not readable(watching, 0)


def test_watch_is_not_armed_when_it_is_satisfied_already(partition: PartitionHandle) -> None:
    partition.append(batch())
    watching = PartitionWatch()
    assert not watching.arm("a", partition, watch.FETCH, 0)
    assert len(watching) == 0


def test_disarmed_watch_reports_nothing(partition: PartitionHandle) -> None:
    watching = PartitionWatch()
    watching.arm("a", partition, watch.FETCH, 0)
    watching.arm("b", partition, watch.FETCH, 0)
    watching.disarm("a")
    partition.append(batch())
    assert readable(watching, 10)
    assert watching.take() == ["b"]


def test_watch_closes_the_files_of_its_partition_without_the_gil_when_it_has_the_last_count() -> None:
    """If a thread takes the disk's lock while it holds the GIL, a debug build aborts."""
    disk = SimulatedDisk()
    disk.make_directories("/data")
    made = PartitionHandle(LogDirectory(disk.environment(), "/data"), "t", 0)
    made.become_leader(1, 0)
    made.append(batch())
    watching = PartitionWatch()
    assert watching.arm("a", made, watch.FETCH, 1)
    made.close(gone=True)
    del made
    gc.collect()
    assert watching.take() == ["a"]


def test_watches_wake_when_their_partition_is_deleted(partition: PartitionHandle) -> None:
    watching = PartitionWatch()
    watching.arm("a", partition, watch.FETCH, 0)
    partition.close(gone=True)
    assert readable(watching, 10)
    assert watching.take() == ["a"]


def test_closing_frees_every_watch(partition: PartitionHandle) -> None:
    before = watch.live()
    watching = PartitionWatch()
    for number in range(50):
        watching.arm(number, partition, watch.FETCH, 0)
    assert watch.live() == before + 50
    partition.append(batch())
    watching.close()
    assert watch.live() == before


@pytest.mark.parametrize("cyclic", [False, True])
def test_watch_outlives_its_owner(cyclic: bool) -> None:
    gc.collect()
    before = watch.live()  # brokers of earlier tests in this process may have left some
    disk = SimulatedDisk()
    disk.make_directories("/data")
    made = PartitionHandle(LogDirectory(disk.environment(), "/data"), "t", 0)
    made.become_leader(1, 0)
    made.append(batch())
    watching = PartitionWatch()
    assert watching.arm("a", made, watch.FETCH, 1)
    if cyclic:  # the garbage collector frees all of it at once, in any order
        garbage: list[object] = [disk, made.directory.environment, made, watching]
        garbage.append(garbage)
        del garbage, watching
    del disk, made
    gc.collect()
    if not cyclic:
        watching.close()
        del watching
    assert watch.live() == before
