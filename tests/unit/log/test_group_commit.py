"""Syncs that acknowledgements wait for: which appends share a sync, and which syncs run at the same time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory, company_wait
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from processes import wait_until

SYNC_MS = 200
MILLISECOND_NS = 1_000_000


def batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp=1_700_000_000_000, key=None, value=b"v" * 100)
    return builder.build()


def led(directory: LogDirectory, index: int, **settings: int) -> PartitionHandle:
    handle = PartitionHandle(directory, "orders", index, Uuid.random(), LogSettings(**settings))
    handle.become_leader(1, 0)
    return handle


def test_producer_that_was_alone_never_waits() -> None:
    assert company_wait(asked=1, company=1, since_ns=0, took_ns=SYNC_MS * MILLISECOND_NS) == 0
    assert company_wait(asked=1, company=0, since_ns=0, took_ns=0) == 0  # the first sync of all


def test_sync_starts_at_once_when_as_many_producers_wait_as_last_time() -> None:
    assert company_wait(asked=15, company=16, since_ns=0, took_ns=400_000) > 0
    assert company_wait(asked=16, company=16, since_ns=0, took_ns=400_000) == 0
    assert company_wait(asked=17, company=16, since_ns=0, took_ns=400_000) == 0


@pytest.mark.parametrize(
    ("since_ns", "took_ns", "wait_ns"),
    [
        (0, 400_000, 100_000),  # a quarter of the last sync's duration ...
        (30_000, 400_000, 70_000),  # ... counted from the end of that sync
        (100_000, 400_000, 0),
        (10**12, 400_000, 0),  # the other producers were seen long ago
        (0, 80 * MILLISECOND_NS, MILLISECOND_NS),  # the wait is short even if the device is slow
        (0, 0, 0),
    ],
)
def test_wait_for_company_is_short_compared_to_a_sync(since_ns: int, took_ns: int, wait_ns: int) -> None:
    assert company_wait(asked=1, company=16, since_ns=since_ns, took_ns=took_ns) == wait_ns


def test_files_of_a_directory_are_synced_side_by_side() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    directory = LogDirectory(disk.environment(), "/data")
    handles = [led(directory, index) for index in range(12)]
    # On a busy machine threads start late, so a single successful attempt is enough.
    assert any(syncs_under_way_at_once(disk, directory, handles) > 5 for _ in range(10))


def syncs_under_way_at_once(disk: SimulatedDisk, directory: LogDirectory, handles: list[PartitionHandle]) -> float:
    """Flushes all logs. Returns the average number of syncs that run at the same time."""
    before_ns = directory.syncs[1]
    for handle in handles:
        handle.append(batch())
    disk.slow_down(SYNC_MS * 1000)
    began_ns = time.monotonic_ns()
    for handle in handles:
        handle.flush_soon()
    assert all(handle.flush() for handle in handles)
    taken_ns = time.monotonic_ns() - began_ns
    disk.slow_down(0)
    return (directory.syncs[1] - before_ns) / taken_ns


def test_each_acknowledgement_comes_after_its_sync_when_many_producers_append(tmp_path: Path) -> None:
    directory = LogDirectory(Environment(), str(tmp_path))
    handles = [led(directory, index, flush_messages=1) for index in range(3)]
    early: list[int] = []

    def produce(handle: PartitionHandle) -> None:
        for _ in range(40):
            last = handle.append(batch(), acks=-1).last_offset
            if handle.synced_offset <= last or handle.high_watermark <= last:
                early.append(last)

    threads = [threading.Thread(target=produce, args=(handle,)) for handle in handles for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not early
    assert [handle.synced_offset for handle in handles] == [160] * 3
    assert directory.syncs[0] <= 480 + 3 * 3  # at most one sync per append, plus three for each log


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("every", [1, 4])
def test_append_returns_after_the_flush_that_it_makes_due(acks: int, every: int) -> None:
    """This applies to any acks, and also to partitions with other replicas, because Apache Kafka flushes within the
    append."""
    disk = SimulatedDisk()
    disk.make_directories("/data")
    handle = PartitionHandle(
        LogDirectory(disk.environment(), "/data"), "orders", 0, Uuid.random(), LogSettings(flush_messages=every)
    )
    handle.become_leader(1, 0, followers=((2, acks > 0),), min_isr=1)
    disk.slow_down(2_000)
    for number in range(1, 9):
        result = handle.append(batch(), acks=acks)
        assert result.error == 0
        if number % every == 0:
            assert handle.synced_offset == result.last_offset + 1


def test_retry_waits_for_the_flush_that_its_first_append_made_due() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    handle = led(LogDirectory(disk.environment(), "/data"), 0, flush_messages=1)
    builder = RecordBatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0)
    builder.append(timestamp=1_700_000_000_000, key=None, value=b"v")
    sent = builder.build()
    disk.slow_down(20_000)
    assert handle.append(sent, acks=1, wait=False).ack is not None
    again = handle.append(sent, acks=1)
    assert (again.duplicate, handle.synced_offset) == (True, again.last_offset + 1)


def test_high_watermark_rises_when_syncs_become_due_after_the_last_append(tmp_path: Path) -> None:
    directory = LogDirectory(Environment(), str(tmp_path))
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings())
    handle.become_leader(1, 0, followers=[(2, True)])
    handle.append(batch(), acks=-1, wait=False)
    handle.configure(LogSettings(flush_messages=1))
    handle.followed(2, handle.end_offset, current_epoch=0)
    wait_until(lambda: handle.high_watermark == handle.end_offset, 10, "the sync of the last append")
    handle.close()
    directory.close()
