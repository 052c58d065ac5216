"""Compaction while other threads append and read committed records. No reader ever sees a record of an aborted
transaction."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compacting import ABORT, COMMIT, compact
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.compact.compaction import MAP, Compaction, CompactionCancelled
from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage.log_manager import LogManager
from transactions import marker

NOW = 1_700_000_000_000
ROUNDS, TRANSACTIONS, PRODUCERS, KEYS = 8, 12, 3, 4
CUTS = 20
SLOW_US = 300  # the duration of each disk operation, so that readers see a swap in progress
SETTINGS = LogSettings(segment_bytes=700, index_interval_bytes=100, compact_policy=True, delete_policy=False)


def append_transactions(handle: PartitionHandle, first: int) -> None:
    """Appends transactions. Each producer alternates between aborting and committing, and the values of the records say
    which."""
    for number in range(first, first + TRANSACTIONS):
        producer, aborted = number % PRODUCERS, (number // PRODUCERS) % 2 == 0
        sequence = number // PRODUCERS
        builder = RecordBatchBuilder(
            base_offset=handle.end_offset, partition_leader_epoch=0, producer_id=producer, producer_epoch=0,
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        builder.append(NOW, b"%d" % (number % KEYS), (b"aborted " if aborted else b"committed ") + b"v" * 40)
        assert handle.append_replicated(builder.build(), 9).error == 0
        kind = ABORT if aborted else COMMIT
        assert handle.append_replicated(marker(handle.end_offset, producer, kind), 9).error == 0
    assert handle.flush(10_000)


def committed_values(handle: PartitionHandle) -> list[bytes]:
    """Returns the values between the log's start and its last stable offset, without aborted records, as a consumer
    sees them."""
    values: list[bytes] = []
    offset = 0
    while offset < handle.last_stable_offset:
        found = handle.read(offset, 2000, isolation=1)
        assert found.error == 0
        if not found.records:
            break
        waiting, ongoing = sorted(found.aborted, key=lambda one: one[1]), set()
        for batch in Batches(found.records):
            while waiting and waiting[0][1] <= batch.last_offset:
                ongoing.add(waiting.pop(0)[0])
            if batch.is_control:
                ongoing.discard(batch.producer_id) if [one.control_type for one in batch] == [ABORT] else None
            elif batch.producer_id not in ongoing:
                values += [record.value or b"" for record in batch]
            offset = batch.next_offset
    return values


def log_of_two_segments(disk: SimulatedDisk, settings: LogSettings) -> tuple[LogManager, PartitionHandle]:
    """Returns a log with two segments, of which the second has one batch."""
    disk.make_directories("/data")
    manager = LogManager(disk.environment(), ["/data"], lambda topic: settings, files=disk)
    manager.load()
    (handle,) = manager.create("orders", Uuid.random(), [0])
    handle.become_leader(1, 1)
    while len(handle.segments()) < 2:
        assert handle.append(of_size(6000)).error == 0
    return manager, handle


def test_compaction_leaves_the_log_undamaged_when_it_is_truncated_meanwhile() -> None:
    """The truncation removes half of the batches in the file, and other records then follow."""
    cancelled = 0
    for number in range(CUTS):
        disk = SimulatedDisk()
        manager, handle = log_of_two_segments(disk, LogSettings(segment_bytes=200_000, compact_policy=True))
        upper_bound = handle.segments()[-1].base_offset
        disk.slow_down(SLOW_US)
        with ThreadPoolExecutor(1) as pool:
            round_ = pool.submit(compact, handle, 0, upper_bound, NOW, 1000, step_bytes=1 << 30)
            for offset in range(number):
                handle.read(offset, 100)  # takes as long as one operation of the compaction
            handle.truncate_to(1 + number % 4)
            disk.slow_down(0)
            while handle.end_offset < upper_bound:
                assert handle.append(of_size(5000)).error == 0
            try:
                round_.result()
            except CompactionCancelled:
                cancelled += 1
        manager.close()
    assert cancelled


def test_compaction_ends_without_a_disk_failure_when_the_log_is_being_truncated() -> None:
    """The compaction first reads an index with the length that the index had before the truncation."""
    for number in range(CUTS):
        disk = SimulatedDisk()
        settings = LogSettings(segment_bytes=200_000, index_interval_bytes=100, compact_policy=True)
        manager, handle = log_of_two_segments(disk, settings)
        upper_bound = handle.segments()[-1].base_offset
        disk.slow_down(SLOW_US)
        with ThreadPoolExecutor(1) as pool:
            cut = pool.submit(handle.truncate_to, 1 + number % 4)
            for offset in range(number):
                handle.read(offset, 100)
            with contextlib.suppress(CompactionCancelled):
                compact(handle, 0, upper_bound, NOW, 1000, step_bytes=1 << 30)
            cut.result()
        manager.close()


def of_size(value_bytes: int) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(NOW, b"k", b"v" * value_bytes)
    return builder.build()


def test_compaction_never_shows_an_aborted_record_to_a_reader() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    manager = LogManager(disk.environment(), ["/data"], lambda topic: SETTINGS, files=disk)
    manager.load()
    (handle,) = manager.create("orders", Uuid.random(), [0])
    handle.become_leader(1, 1)
    append_transactions(handle, 0)
    disk.slow_down(SLOW_US)
    over = threading.Event()

    def read() -> int:
        times = 0
        while not over.is_set():
            values = committed_values(handle)
            assert not [value for value in values if not value.startswith(b"committed")]
            times += 1
        return times

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(1, ROUNDS):
                bases = [segment.base_offset for segment in handle.segments()]
                appends = pool.submit(append_transactions, handle, number * TRANSACTIONS)
                compact(handle, 0, bases[-1], NOW + 2000 * number, 1000)
                appends.result()
        finally:
            over.set()
        assert all(reader.result() > 1 for reader in readers)
    assert len(committed_values(handle)) >= KEYS
    manager.close()


def test_segments_deleted_during_a_compaction_leave_no_index(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=700, index_interval_bytes=100, compact_policy=True)
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "orders", 0, Uuid.random(), settings)
    handle.become_leader(1, 0)
    for number in range(60):
        builder = RecordBatchBuilder()
        builder.append(NOW, b"%d" % (number % KEYS), b"v" * 40)
        assert handle.append(builder.build()).error == 0
    bases = [segment.base_offset for segment in handle.segments()]
    keys = KeyOffsets(1 << 20, 0.9, b"0123456789abcdef")
    keys.begin(60)
    compaction = Compaction(
        handle, keys, 0, bases[-1], now_ms=NOW, delete_retention_ms=1000, buffer_bytes=4096
    )  # fmt: skip
    while compaction.phase == MAP:
        compaction.step(1 << 20)
    assert handle.delete_records(bases[3]) == (0, bases[3], None)
    with pytest.raises(FileNotFoundError):
        compaction.step(1 << 20)
    compaction.close()
    handle.shut()
    names = {path.name for path in (tmp_path / "orders-0").iterdir()}
    lone = [name for name in names if name.endswith("index") and name.split(".")[0] + ".log" not in names]
    assert not lone, "an index has no segment"
