"""The log of one partition, used through its Python handle: idempotent producers, rolls, truncation, retention, epochs,
reads and lookups."""

from __future__ import annotations

import gc
import select
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from damaged_logs import marker
from descriptors import no_free_descriptor
from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log import move, partition, producers, segment
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import SYNCED, PartitionWatch
from kafkacore._fast.log.producer_states import producer_states
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait import io
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage import log_loader
from processes import wait_until

NOW = 1_700_000_000_000
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
NOT_LEADER_OR_FOLLOWER = 6
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
TRANSACTION_COORDINATOR_FENCED = 52
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
INVALID_RECORD = 87
ABORT, COMMIT = 0, 1


@pytest.fixture(autouse=True)
def everything_is_given_back() -> Iterator[None]:
    gc.collect()  # frees objects that an earlier test left in a reference cycle (with a traceback)
    before = [module.live_count() for module in (io, partition, producers, segment)]
    yield
    assert [module.live_count() for module in (io, partition, producers, segment)] == before


def led(path: Path, clock: ManualClock | None = None, **settings: int | bool) -> PartitionHandle:
    directory = LogDirectory(Environment(clock or ManualClock(NOW)), str(path))
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings(**settings))
    handle.become_leader(1, 0)
    return handle


def batch(count: int = 2, timestamp: int = NOW, size: int = 100, **fields: int | bool | str) -> bytes:
    builder = RecordBatchBuilder(**fields)
    for _ in range(count):
        builder.append(timestamp=timestamp, key=b"k", value=b"v" * size)
    return builder.build()


def idempotent(sequence: int, epoch: int = 0, count: int = 2) -> bytes:
    return batch(count, producer_id=4, producer_epoch=epoch, base_sequence=sequence)


def offsets(handle: PartitionHandle, start: int = 0, isolation: int = 3) -> list[int]:
    found: list[int] = []
    while True:
        read = handle.read(start, 1 << 20, isolation)
        assert read.error == 0
        for one in Batches(read.records):
            found.extend(range(one.base_offset, one.next_offset))
            start = one.next_offset
        if not read.records:
            return found


# --- idempotent producers (KIP-98) ---


def test_duplicate_is_recognised_among_the_last_five_batches(tmp_path: Path) -> None:
    handle = led(tmp_path)
    for i in range(7):
        assert handle.append(idempotent(2 * i)).first_offset == 2 * i
    for i in range(2, 7):
        again = handle.append(idempotent(2 * i))
        assert (again.error, again.duplicate, again.first_offset) == (0, True, 2 * i)
    assert handle.append(idempotent(2)).error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.end_offset == 14


@pytest.mark.parametrize(("size", "least"), [(100, 5), (200_000, 1)])
def test_duplicate_is_recognised_after_an_orderly_stop(tmp_path: Path, size: int, least: int) -> None:
    batches = [batch(2, size=size, producer_id=4, producer_epoch=0, base_sequence=2 * i) for i in range(7)]
    handle = led(tmp_path)
    handle.append(batch(size=100_000))
    for one in batches:
        handle.append(one)
    handle.shut()
    again = PartitionHandle(handle.directory, "orders", 0, handle.topic_id, LogSettings())
    log_loader.load(again, str(tmp_path / "orders-0"), clean=True)
    again.become_leader(1, 1)
    # Batches that are too far from the end of the log are not recognised. (Apache Kafka recognises only the last
    # batch.)
    answers = [(each.error, each.duplicate, each.first_offset) for each in map(again.append, batches)]
    recalled = [(0, True, 2 + 2 * i) for i in range(7)]
    known = sum(duplicate for _, duplicate, _ in answers)
    assert known >= least
    assert answers == [(OUT_OF_ORDER_SEQUENCE_NUMBER, False, -1)] * (7 - known) + recalled[-known:]
    assert again.append(idempotent(14)).first_offset == 16
    again.close()


def test_gap_in_the_sequence_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(idempotent(0))
    assert handle.append(idempotent(4)).error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.append(idempotent(2)).error == 0


def test_log_fences_an_older_producer_epoch_and_starts_a_newer_one_at_sequence_zero(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(idempotent(0, epoch=3))
    assert handle.append(idempotent(2, epoch=2)).error == INVALID_PRODUCER_EPOCH
    assert handle.append(idempotent(2, epoch=4)).error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.end_offset == 2
    # The sequence numbers are the same as in epoch 3, but the records are new.
    begun = handle.append(idempotent(0, epoch=4))
    assert (begun.error, begun.duplicate, begun.first_offset, begun.last_offset) == (0, False, 2, 3)
    assert offsets(handle) == [0, 1, 2, 3]
    late = handle.append(idempotent(0, epoch=3))
    assert (late.error, late.duplicate, handle.end_offset) == (INVALID_PRODUCER_EPOCH, False, 4)
    again = handle.append(idempotent(0, epoch=4))
    assert (again.error, again.duplicate, again.first_offset, handle.end_offset) == (0, True, 2, 4)


def test_sequence_wraps_at_its_greatest_number(tmp_path: Path) -> None:
    handle = led(tmp_path)
    assert handle.append(idempotent((1 << 31) - 2)).error == 0
    assert handle.append(idempotent(0)).error == 0


def test_unknown_producer_may_begin_at_any_sequence(tmp_path: Path) -> None:
    assert led(tmp_path).append(idempotent(77)).error == 0


def test_producer_is_forgotten_after_its_expiration(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    handle = led(tmp_path, clock, producer_id_expiration_ms=1000)
    handle.append(idempotent(0))
    assert handle.expire_producers() == 0
    clock.advance_ms(1000)
    assert handle.expire_producers() == 1
    assert handle.append(idempotent(40)).error == 0


def test_producer_stays_known_while_its_transaction_is_open(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    handle = led(tmp_path, clock, producer_id_expiration_ms=1000)
    opened = batch(producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    assert handle.append(opened, origin="coordinator").error == 0
    clock.advance_ms(5000)
    assert handle.expire_producers() == 0
    assert [each.transaction_first_offset for each in producer_states(handle)] == [0]
    assert (handle.last_stable_offset, handle.high_watermark) == (0, 2)
    assert handle.append(marker(0, NOW + 5000, 4, 1, 0), origin="coordinator").error == 0
    assert (handle.last_stable_offset, handle.expire_producers()) == (3, 0)
    clock.advance_ms(1000)
    assert handle.expire_producers() == 1
    assert producer_states(handle) == []


def test_transactional_batch_is_refused(tmp_path: Path) -> None:
    result = led(tmp_path).append(batch(producer_id=4, producer_epoch=0, base_sequence=0, transactional=True))
    assert result.error == INVALID_TXN_STATE


def closed_with_snapshot(path: Path) -> tuple[PartitionHandle, Path]:
    """Returns a new handle, not yet loaded, of a cleanly closed log with one record, and the log's snapshot."""
    handle = led(path)
    handle.append(idempotent(0, count=1))
    handle.shut()
    again = PartitionHandle(handle.directory, "orders", 0, handle.topic_id, LogSettings())
    return again, path / "orders-0" / f"{1:020}.snapshot"


def test_log_rolls_and_stops_when_the_snapshot_of_its_producers_exceeds_64_mib(tmp_path: Path) -> None:
    handle, snapshot = closed_with_snapshot(tmp_path)
    count = (64 << 20) // 46 + 1
    entry = struct.Struct(">qhiqiqiq")
    body = struct.pack(">i", count) + b"".join(entry.pack(i, 0, 0, 0, 0, NOW, -1, -1) for i in range(count))
    snapshot.write_bytes(struct.pack(">hI", 1, checksum(body)) + body)
    log_loader.load(handle, str(snapshot.parent), clean=True)
    handle.become_leader(1, 1)
    handle.configure(LogSettings(segment_bytes=len(batch())))
    assert handle.append(batch()).first_offset == 1
    assert handle.append(batch()).first_offset == 3
    handle.shut()
    assert handle.directory.offline_errno == 0
    written = [snapshot.with_name(f"{offset:020}.snapshot") for offset in (3, 5)]
    assert [each.stat().st_size for each in written] == [snapshot.stat().st_size] * 2


def test_load_removes_a_producer_snapshot_when_it_is_too_large(tmp_path: Path) -> None:
    handle, snapshot = closed_with_snapshot(tmp_path)
    with snapshot.open("r+b") as file:
        file.truncate(1 << 31)
    log_loader.load(handle, str(snapshot.parent), clean=True)
    assert not snapshot.exists()
    assert handle.directory.offline_errno == 0
    handle.become_leader(1, 1)
    assert handle.append(idempotent(0, count=1)).duplicate, "the records give the same state"


# --- markers of transactions ---


def control(kind: int, epoch: int = 0, coordinator_epoch: int = 7) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=4, producer_epoch=epoch, base_sequence=-1, transactional=True, control=True
    )
    builder.append(NOW, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch))
    return bytes(builder.build())


def in_transaction(handle: PartitionHandle, sequence: int = 0, epoch: int = 0) -> int:
    """Appends a verified transactional batch. Returns the error."""
    opened = batch(producer_id=4, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    return handle.append(opened, origin="transaction").error


def test_last_stable_offset_is_the_log_start_when_the_start_of_an_open_transaction_is_deleted(tmp_path: Path) -> None:
    """A consumer that begins at the last stable offset would otherwise begin at a deleted record."""
    handle = led(tmp_path)
    assert in_transaction(handle) == 0
    handle.append(batch())
    assert (handle.last_stable_offset, handle.high_watermark) == (0, 4)
    assert handle.delete_records(3)[0] == 0
    assert (handle.last_stable_offset, handle.log_start_offset) == (3, 3)
    assert handle.append(control(ABORT), origin="coordinator").error == 0
    assert handle.last_stable_offset == 5


def test_last_stable_offset_stays_below_a_verified_transaction_until_its_marker(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(batch())
    assert in_transaction(handle) == 0
    assert (handle.last_stable_offset, handle.high_watermark) == (2, 4)
    assert handle.append(control(ABORT), origin="coordinator").error == 0
    assert (handle.last_stable_offset, handle.high_watermark) == (5, 5)
    assert handle.read(0, isolation=1).aborted == [(4, 2)]


def test_verified_batch_of_a_gap_or_a_control_batch_of_a_client_is_refused(tmp_path: Path) -> None:
    handle = led(tmp_path)
    assert in_transaction(handle) == 0
    assert in_transaction(handle, sequence=4) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.append(control(COMMIT), origin="transaction").error == INVALID_RECORD
    assert handle.end_offset == 2


def test_unknown_producer_may_begin_a_transaction_at_any_sequence(tmp_path: Path) -> None:
    assert in_transaction(led(tmp_path), sequence=2) == 0, "the epoch may be that of an earlier transaction"


def test_unknown_producer_begins_at_sequence_zero_when_its_transactions_have_their_own_epochs(tmp_path: Path) -> None:
    handle = led(tmp_path)
    first, second = (
        batch(producer_id=4, producer_epoch=0, base_sequence=sequence, transactional=True) for sequence in (0, 2)
    )
    assert handle.append(second, origin="bumped transaction").error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.end_offset == 0
    assert [handle.append(each, origin="bumped transaction").error for each in (first, second)] == [0, 0]


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 2), (1, 0)])
def test_batch_outside_an_open_transaction_is_refused_and_the_transaction_ends(
    tmp_path: Path, epoch: int, sequence: int
) -> None:
    handle = led(tmp_path)
    assert in_transaction(handle) == 0
    assert handle.append(idempotent(sequence, epoch=epoch)).error == INVALID_TXN_STATE
    assert handle.append(control(COMMIT), origin="coordinator").error == 0
    assert (handle.end_offset, handle.last_stable_offset) == (3, 3)
    assert handle.append(idempotent(0, epoch=1)).error == 0


def test_marker_of_an_older_coordinator_is_fenced_and_changes_nothing(tmp_path: Path) -> None:
    handle = led(tmp_path)
    assert in_transaction(handle) == 0
    assert handle.append(control(COMMIT, coordinator_epoch=8), origin="coordinator").error == 0
    assert in_transaction(handle, sequence=2) == 0
    late = handle.append(control(ABORT, coordinator_epoch=7), origin="coordinator")
    assert late.error == TRANSACTION_COORDINATOR_FENCED
    assert (handle.end_offset, handle.last_stable_offset) == (5, 3)
    assert handle.append(control(COMMIT, coordinator_epoch=8), origin="coordinator").error == 0
    assert (handle.end_offset, handle.last_stable_offset) == (6, 6)


def test_marker_of_an_older_producer_epoch_is_refused(tmp_path: Path) -> None:
    handle = led(tmp_path)
    assert in_transaction(handle, epoch=3) == 0
    for origin in ("coordinator", "bumped marker"):
        assert handle.append(control(ABORT, epoch=2), origin=origin).error == INVALID_PRODUCER_EPOCH
    assert (handle.end_offset, handle.last_stable_offset) == (2, 0)


def test_marker_with_a_bumped_epoch_ends_only_the_transaction_of_an_older_epoch(tmp_path: Path) -> None:
    handle = led(tmp_path)
    assert in_transaction(handle, epoch=3) == 0
    assert handle.append(control(COMMIT, epoch=3), origin="bumped marker").error == INVALID_PRODUCER_EPOCH
    assert handle.append(control(COMMIT, epoch=4), origin="bumped marker").error == 0
    again = handle.append(control(COMMIT, epoch=4), origin="bumped marker")
    assert again.error == 0, "a marker that the coordinator repeats must be accepted"
    assert in_transaction(handle, epoch=4) == 0
    late = handle.append(control(COMMIT, epoch=4), origin="bumped marker")
    assert late.error == INVALID_PRODUCER_EPOCH, "a late retry of a marker must not end the next transaction"
    assert handle.last_stable_offset == 4


# --- rolls ---


def test_segment_ends_before_a_batch_that_would_not_fit(tmp_path: Path) -> None:
    one = len(batch())
    handle = led(tmp_path, segment_bytes=3 * one)
    for _ in range(7):
        handle.append(batch())
    assert [(part.base_offset, part.size_bytes) for part in handle.segments()] == [
        (0, 3 * one),
        (6, 3 * one),
        (12, one),
    ]
    assert offsets(handle) == list(range(14))


def test_segment_ends_when_its_first_batch_is_too_old_for_the_next(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_ms=1000)
    handle.append(batch(timestamp=NOW))
    handle.append(batch(timestamp=NOW + 1000))
    handle.append(batch(timestamp=NOW + 1001))
    assert [part.base_offset for part in handle.segments()] == [0, 4]


def test_segment_ends_when_its_index_is_full(tmp_path: Path) -> None:
    handle = led(tmp_path, index_interval_bytes=0, segment_index_bytes=24)
    for _ in range(8):
        handle.append(batch())
    # The size allows three entries of 8 bytes in the offset index, and two of 12 bytes in the time index. The second of
    # these two is reserved for the roll.
    assert len(handle.segments()) > 2
    assert offsets(handle) == list(range(16))


def test_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    assert led(tmp_path, segment_bytes=200).append(batch()).error == RECORD_LIST_TOO_LARGE


def test_preallocated_segment_is_cut_to_its_size_when_it_ends(tmp_path: Path) -> None:
    one = len(batch())
    handle = led(tmp_path, segment_bytes=2 * one + 10, preallocate=True)
    for _ in range(3):
        handle.append(batch())
    sizes = [path.stat().st_size for path in sorted((tmp_path / "orders-0").glob("*.log"))]
    assert sizes == [2 * one, 2 * one + 10]
    assert offsets(handle) == list(range(6))
    reloaded = reload(handle, clean=False)
    assert reloaded.end_offset == 6


def reload(handle: PartitionHandle, *, clean: bool, settings: LogSettings | None = None) -> PartitionHandle:
    # `retire` finishes the work in progress but loses unsaved state. Without it, two logs would write to one directory.
    handle.retire()
    made = PartitionHandle(handle.directory, "orders", 0, handle.topic_id, settings or handle.settings)
    log_loader.load(made, f"{handle.directory.path}/orders-0", clean=clean)
    made.become_leader(1, handle.leader_epoch)
    return made


# --- truncation and deletion ---


@pytest.mark.parametrize("end", [0, 1, 5, 6, 7, 12, 19])
def test_truncated_log_appends_at_its_new_end(tmp_path: Path, end: int) -> None:
    one = len(batch())
    handle = led(tmp_path, segment_bytes=3 * one, index_interval_bytes=100)
    for i in range(10):
        handle.append(idempotent(2 * i))
    handle.truncate_to(end)
    end = end // 2 * 2  # only whole batches remain, so every offset has its record
    assert (handle.end_offset, handle.high_watermark) == (end, end)
    assert offsets(handle) == list(range(end))
    assert handle.append(batch()).first_offset == end
    for clean in (False, True):
        again = reload(handle, clean=clean)
        assert again.end_offset == end + 2
        assert offsets(again) == list(range(end + 2))
        handle = again
        handle.shut()


@pytest.mark.parametrize("end", [6, 0], ids=["within", "whole"])
def test_high_watermark_is_never_above_the_end_while_a_truncation_waits_for_the_disk(end: int) -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    directory = LogDirectory(disk.environment(), "/data")
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings())
    handle.become_leader(1, 0)
    for i in range(10):
        handle.append(idempotent(2 * i))
    assert handle.high_watermark == 20
    disk.slow_down(50_000)
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(handle.truncate_to, end)
        while handle.end_offset == 20:
            assert not cut.done()
        high_watermark = handle.high_watermark
        assert not cut.done()
        disk.slow_down(0)
        cut.result()
    assert high_watermark == end


def test_high_watermark_follows_a_log_without_files_that_begins_anew(tmp_path: Path) -> None:
    handle = PartitionHandle(LogDirectory(Environment(), str(tmp_path)), "orders", 0, Uuid.random(), LogSettings())
    for offset in (100, 40):
        handle.truncate_fully(offset)
        assert (handle.log_start_offset, handle.high_watermark, handle.end_offset) == (offset, offset, offset)


def test_log_start_moves_back_with_a_truncation_that_cuts_its_batch_off(tmp_path: Path) -> None:
    handle = led(tmp_path)
    for _ in range(2):
        handle.append(batch(4))
    handle.drop_below(5)
    handle.truncate_to(6)
    assert (handle.log_start_offset, handle.end_offset) == (4, 4)
    assert handle.append(batch()).first_offset == 4


def test_truncation_restores_the_earlier_producer_states(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_bytes=3 * len(batch()))
    for i in range(10):
        handle.append(idempotent(2 * i))
    handle.truncate_to(8)
    assert handle.append(idempotent(18)).error == OUT_OF_ORDER_SEQUENCE_NUMBER
    for i in range(4):
        again = handle.append(idempotent(2 * i))  # some of these batches come before the snapshot of the last segment
        assert (again.error, again.duplicate, again.first_offset) == (0, True, 2 * i)
    assert handle.append(idempotent(8)).first_offset == 8


def test_full_truncation_restarts_the_log_at_the_given_offset(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(batch())
    handle.truncate_fully(100)
    assert (handle.log_start_offset, handle.end_offset, handle.leader_epochs()) == (100, 100, [])
    assert handle.read(50).error == OFFSET_OUT_OF_RANGE
    assert handle.append(batch()).first_offset == 100
    assert reload(handle, clean=False).log_start_offset == 100


def test_full_truncation_removes_the_producers_of_an_orderly_stop(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(idempotent(0))
    handle.shut()
    again = PartitionHandle(handle.directory, "orders", 0, handle.topic_id, LogSettings())
    log_loader.load(again, str(tmp_path / "orders-0"), clean=True)
    assert [each.name for each in (tmp_path / "orders-0").glob("*.snapshot")] == [f"{2:020}.snapshot"]
    again.truncate_fully(0)
    # Other records may get these offsets. A snapshot at such an offset would describe the producers of the old records.
    assert list((tmp_path / "orders-0").glob("*.snapshot")) == []
    assert again.end_offset == 0
    again.close()


def test_retention_by_size_keeps_at_least_the_configured_bytes(tmp_path: Path) -> None:
    one = len(batch())
    handle = led(tmp_path, segment_bytes=2 * one, retention_bytes=5 * one)
    for _ in range(10):
        handle.append(batch())
    assert handle.delete_old_segments() == 2
    assert (handle.log_start_offset, handle.size_bytes) == (8, 6 * one)
    assert handle.delete_old_segments() == 0


def test_retention_by_time_ends_with_an_empty_segment_at_the_same_offset(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    handle = led(tmp_path, clock, segment_bytes=2 * len(batch()), retention_ms=1000)
    for _ in range(5):
        handle.append(batch())
    clock.advance_ms(1000)
    assert handle.delete_old_segments() == 0
    clock.advance_ms(1)
    assert handle.delete_old_segments() == 3
    assert (handle.log_start_offset, handle.end_offset, handle.size_bytes) == (10, 10, 0)
    assert handle.append(batch(timestamp=NOW + 2000)).first_offset == 10


def test_retention_of_records_without_timestamps_counts_from_the_last_append(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    handle = led(tmp_path, clock, retention_ms=1000)
    handle.append(batch(timestamp=-1))
    clock.advance_ms(900)
    handle.append(batch(timestamp=-1))
    clock.advance_ms(1000)
    assert handle.delete_old_segments() == 0
    clock.advance_ms(1)
    assert handle.delete_old_segments() == 1


def test_retention_deletes_nothing_above_the_high_watermark(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_bytes=len(batch()), retention_bytes=0)
    handle.become_leader(1, 1, 1, [(2, True)])
    for _ in range(4):
        handle.append(batch())
    assert handle.high_watermark == 0
    assert handle.delete_old_segments() == 0


def test_records_above_the_high_watermark_cannot_be_deleted(tmp_path: Path) -> None:
    handle = led(tmp_path)
    for _ in range(4):
        handle.append(batch())
    handle = behind_its_end(handle, high_watermark=4)
    for offset in (5, 8, 9, -2):
        assert handle.delete_records(offset) == (OFFSET_OUT_OF_RANGE, -1, None)
        assert (handle.log_start_offset, offsets(handle)) == (0, list(range(8)))
    assert handle.delete_records(4)[:2] == (0, -1), "the low watermark must wait for the other replica"
    assert offsets(handle, 4) == [4, 5, 6, 7]
    assert handle.delete_records(-1)[:2] == (0, -1)


def behind_its_end(handle: PartitionHandle, high_watermark: int) -> PartitionHandle:
    """Returns the log after a restart of its leader. The follower has not fetched the end of the log yet."""
    handle.retire()
    made = PartitionHandle(handle.directory, "orders", 0, handle.topic_id, handle.settings)
    log_loader.load(made, f"{handle.directory.path}/orders-0", clean=False)
    made.restore_high_watermark(high_watermark)
    made.become_leader(1, handle.leader_epoch + 1, 1, [(2, True)])
    assert made.high_watermark == high_watermark
    return made


# --- roles and epochs ---


def test_log_checks_role_and_leader_epoch_of_appends_and_reads(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.become_leader(1, 5, 1)
    handle.append(batch())
    assert handle.read(0, isolation=0, current_epoch=4).error == FENCED_LEADER_EPOCH
    assert handle.read(0, isolation=0, current_epoch=6).error == UNKNOWN_LEADER_EPOCH
    assert handle.become_follower(2, 6, 2)
    assert handle.append(batch()).error == NOT_LEADER_OR_FOLLOWER
    assert not handle.become_leader(1, 5, 3), "an older leader epoch must change nothing"
    assert handle.read(0, isolation=0).error == NOT_LEADER_OR_FOLLOWER
    assert handle.read(0).records


def test_leader_epoch_starts_at_the_log_end_of_its_leader(tmp_path: Path) -> None:
    handle = led(tmp_path)
    for epoch in (1, 2, 5):
        handle.become_leader(1, epoch, epoch)
        handle.append(batch())
    assert handle.leader_epochs() == [(1, 0), (2, 2), (5, 4)]
    assert [handle.epoch_end(epoch) for epoch in (0, 1, 2, 3, 5, 6)] == [
        (0, 0),
        (1, 2),
        (2, 4),
        (2, 4),
        (5, 6),
        (-1, -1),
    ]
    found = handle.read(5, last_fetched_epoch=2)
    assert (found.diverging_epoch, found.diverging_end_offset) == (2, 4)
    assert reload(handle, clean=False).leader_epochs() == [(1, 0), (2, 2), (5, 4)]


def test_earlier_epochs_are_forgotten_when_the_log_starts_where_an_epoch_begins(tmp_path: Path) -> None:
    handle = led(tmp_path)
    for epoch in (1, 2):
        handle.become_leader(1, epoch, epoch)
        handle.append(batch())
    assert handle.delete_records(2)[0] == 0
    assert handle.leader_epochs() == [(2, 2)]


def test_fetch_below_the_log_start_is_out_of_range_when_its_epoch_diverges_too(tmp_path: Path) -> None:
    handle = led(tmp_path)
    for epoch in (1, 3):
        handle.become_leader(1, epoch, epoch)
        handle.append(batch())
    assert handle.delete_records(1)[0] == 0
    assert handle.read(0, isolation=0, last_fetched_epoch=2).error == OFFSET_OUT_OF_RANGE
    assert handle.read(1, isolation=0, last_fetched_epoch=2).diverging_epoch == 1


def test_acks_all_append_is_refused_below_min_isr(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.become_leader(1, 1, 1, [(2, False)], min_isr=2)
    assert handle.append(batch(), acks=-1, wait=False).error == NOT_ENOUGH_REPLICAS
    assert handle.append(batch(), acks=1).error == 0


def test_follower_stores_batches_as_the_leader_stamped_them(tmp_path: Path) -> None:
    (tmp_path / "leader").mkdir()
    (tmp_path / "follower").mkdir()
    leader = led(tmp_path / "leader")
    leader.become_leader(1, 3, 1)
    for _ in range(3):
        leader.append(batch())
    records = leader.read(0, 1 << 20).records
    follower = led(tmp_path / "follower", segment_bytes=1000)
    follower.become_follower(1, 3, 1)
    assert follower.append_replicated(records, 3).error == 0
    assert follower.read(0, 1 << 20).records == records
    assert follower.leader_epochs() == [(3, 0)]
    assert follower.append_replicated(records, 3).error == OFFSET_OUT_OF_RANGE
    broken = bytearray(records)
    broken[-1] ^= 1
    assert follower.append_replicated(bytes(broken), 3).error == CORRUPT_MESSAGE


# --- reads and lookups ---


def test_read_in_a_gap_between_batches_begins_with_the_next_batch(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.become_follower(2, 1, 1)
    first, second = batch(), struct.pack(">q", 10) + batch()[8:]  # the leader has compacted the offsets 2 to 9 away
    assert handle.append_replicated(first + second, 1).error == 0
    for offset in range(2, 11):
        found = handle.read(offset, 1 << 20, 3)
        assert (found.first_offset, found.records[8:]) == (10, second[8:])


def test_read_returns_the_first_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    handle = led(tmp_path)
    one = len(batch())
    for _ in range(3):
        handle.append(batch())
    assert len(handle.read(0, 10, min_one=True).records) == one
    assert handle.read(0, 10, min_one=False).records == b""
    assert len(handle.read(3, one + 10).records) == one + 10  # the last batch may be cut off, as in Kafka
    assert handle.read(3, one).first_offset == 2
    assert handle.read(6).records == b""
    assert handle.read(7).error == OFFSET_OUT_OF_RANGE


def test_read_finds_old_offsets_by_the_index_in_memory_and_on_disk(tmp_path: Path) -> None:
    one = len(batch())
    handle = led(tmp_path, segment_bytes=200 * one, index_interval_bytes=3 * one)
    for _ in range(500):
        handle.append(batch())
    assert len(handle.segments()) == 3
    for offset in range(0, 1000, 7):
        assert handle.read(offset, 1).first_offset == offset // 2 * 2


@pytest.mark.parametrize("bound", [2, 4, 6, 8, 12, 14])
def test_read_ends_at_the_high_watermark_in_every_segment(tmp_path: Path, bound: int) -> None:
    """Each segment has three batches. The bound is inside a sealed segment, between two segments, or inside the last
    segment."""
    handle = led(tmp_path, segment_bytes=3 * len(batch()), index_interval_bytes=0)
    for _ in range(8):
        handle.append(batch())
    handle = behind_its_end(handle, bound)
    assert [part.sealed for part in handle.segments()][:2] == [True, True]
    assert offsets(handle, isolation=0) == list(range(bound))
    assert offsets(handle, isolation=1) == list(range(bound))
    assert offsets(handle, isolation=2) == list(range(16))
    found = handle.read(bound, isolation=0)
    assert (found.error, found.records, found.high_watermark) == (0, b"", bound)


@pytest.mark.parametrize("first", [1, 3, 4, 6])
def test_read_committed_ends_at_an_open_transaction_in_every_segment(tmp_path: Path, first: int) -> None:
    handle = led(tmp_path, segment_bytes=3 * len(batch()), index_interval_bytes=0)
    for number in range(8):
        opens = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        handle.append(batch(**(opens if number == first else {})), origin="coordinator")
    assert handle.last_stable_offset == 2 * first
    assert offsets(handle, isolation=1) == list(range(2 * first))
    assert offsets(handle, isolation=0) == list(range(16))


def test_offset_by_time_ends_at_the_bound(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_bytes=4 * len(batch(1)), index_interval_bytes=0)
    for i in range(10):
        handle.append(batch(1, timestamp=NOW + i))
    for i in (1, 3, 4, 8, 9):  # offsets in sealed segments, at their ends, and in the active segment
        assert handle.offset_by_time(NOW + i, bound=i) == (-1, -1, -1)
        assert handle.offset_by_time(NOW + i, bound=i + 1) == (i, NOW + i, 0)
    handle = behind_its_end(handle, high_watermark=5)
    assert handle.offset_by_time(NOW + 4) == (4, NOW + 4, 0)
    assert handle.offset_by_time(NOW + 5) == (-1, -1, -1)


def test_offset_is_found_by_time(tmp_path: Path) -> None:
    one = len(batch(1))
    handle = led(tmp_path, segment_bytes=20 * one, index_interval_bytes=2 * one)
    for i in range(100):
        handle.append(batch(1, timestamp=NOW + (i if i != 50 else 500)))
    for i in (0, 1, 19, 20, 33, 49):
        assert handle.offset_by_time(NOW + i) == (i, NOW + i, 0)
    assert handle.offset_by_time(NOW + 50) == (50, NOW + 500, 0)
    assert handle.offset_by_time(NOW - 9) == (0, NOW, 0)
    assert handle.offset_by_time(NOW + 501) == (-1, -1, -1)
    assert handle.offset_of_max_timestamp() == (50, NOW + 500, 0)
    again = reload(handle, clean=False)
    assert again.offset_of_max_timestamp() == (50, NOW + 500, 0)


def test_records_and_timestamps_survive_a_clock_that_jumps(tmp_path: Path) -> None:
    """When the clock goes back by an hour or more, so do append times. The timestamps in the time index never
    decrease."""
    clock, times = ManualClock(NOW), []
    one = len(batch(1))
    handle = led(tmp_path, clock, segment_bytes=20 * one, index_interval_bytes=one, log_append_time=True)
    for step_ms in (0, 1, 3_600_000, -3_600_000, -7_200_000, 1):
        clock.step_wall_ms(step_ms)
        for _ in range(10):
            clock.advance_ms(1)
            times.append(clock.wall_ms())
            assert handle.append(batch(1)).error == 0
    assert offsets(handle) == list(range(60))
    for again in (handle, reload(handle, clean=True), reload(handle, clean=False)):
        assert offsets(again) == list(range(60))
        assert again.offset_of_max_timestamp()[:2] == (times.index(max(times)), max(times))
        for wanted in (min(times), NOW, NOW + 15, max(times), max(times) + 1):
            first = next((n for n, time in enumerate(times) if time >= wanted), -1)
            assert again.offset_by_time(wanted)[0] == first


def test_reader_waits_for_the_disk_when_a_sealed_segment_is_cold() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    directory = LogDirectory(disk.environment(), "/data")
    one = len(batch())
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings(segment_bytes=3 * one))
    handle.become_leader(1, 0)
    for _ in range(10):
        handle.append(batch())
    disk.cool()
    assert offsets(handle) == list(range(20))


def test_deletion_during_a_sync_wakes_every_waiting_append() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    settings = LogSettings(segment_bytes=2 * len(batch()), flush_messages=1)
    handle = PartitionHandle(LogDirectory(disk.environment(), "/data"), "orders", 0, Uuid.random(), settings)
    handle.become_leader(1, 0)
    for _ in range(5):
        handle.append(batch())
    assert handle.flush()
    second = handle.segments()[1].base_offset
    disk.slow_down(200_000)
    handle.append(batch(), wait=False)
    watch = PartitionWatch()
    assert watch.arm("synced", handle, SYNCED, handle.end_offset)
    assert not select.select([watch.fileno()], [], [], 0.05)[0]  # the sync is still running
    assert handle.delete_records(second) == (0, second, None)
    assert select.select([watch.fileno()], [], [], 10)[0]
    assert handle.high_watermark == handle.end_offset
    watch.close()


@pytest.mark.parametrize("opened", [False, True])
def test_append_is_refused_when_no_thread_can_open_its_log(tmp_path: Path, opened: bool) -> None:
    log = led(tmp_path, segment_bytes=600)
    if opened:
        assert log.append(batch()).error == 0
    log.directory.close()
    errors = [log.append(batch()).error for _ in range(3)]
    assert errors[-1] == NOT_LEADER_OR_FOLLOWER  # the first batch still fits into the existing segment
    assert log.state == ("open" if opened else "lazy")


def test_append_without_waiting_returns_the_log_when_it_is_not_open(tmp_path: Path) -> None:
    handle = led(tmp_path)
    assert handle.append_now(bytearray(batch())) is None
    assert handle.append(batch()).first_offset == 0
    stamped = bytearray(batch())
    done = handle.append_now(stamped, -1)
    assert done is not None
    assert (done.error, done.first_offset, done.last_offset) == (0, 2, 3)
    assert next(Batches(stamped)).base_offset == 2
    handle.become_follower(2, 1)
    refused = handle.append_now(bytearray(batch()))
    assert refused is not None
    assert refused.error == NOT_LEADER_OR_FOLLOWER


def test_blocking_calls_wait_when_no_descriptor_is_free(tmp_path: Path) -> None:
    """A wait takes a descriptor of its own. Without one, the calls still end as soon as the log is free."""
    handle = led(tmp_path)
    handle.append(batch())
    with no_free_descriptor(), ThreadPoolExecutor(1) as pool:
        move.hold_still(handle)  # the log looks as if it had a job
        append = pool.submit(handle.append, batch())
        with pytest.raises(TimeoutError):
            append.result(0.1)
        move.go_on(handle)
        assert append.result(30).error == 0
        assert handle.flush()
    assert handle.end_offset == 4
    handle.close()
    handle.directory.close()


def test_blocked_append_uses_no_processor_time_when_it_was_woken_too_early(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(batch())
    move.hold_still(handle)
    with ThreadPoolExecutor(1) as pool:
        clock = time.pthread_getcpuclockid(pool.submit(threading.get_ident).result())
        for _ in range(20):
            append = pool.submit(handle.append, batch())
            with pytest.raises(TimeoutError):
                append.result(0.1)
            move.go_on(handle)
            move.hold_still(handle)
            began = time.clock_gettime(clock)
            if wait([append], 0.5).not_done:
                break  # the append woke too late, and found the log held again
        used = time.clock_gettime(clock) - began
        assert not append.done(), "each append woke before the log was held again"
        move.go_on(handle)
        assert append.result(30).error == 0
    assert used < 0.05
    handle.close()
    handle.directory.close()


def test_flush_ends_at_its_timeout_when_no_descriptor_is_free(tmp_path: Path) -> None:
    handle = led(tmp_path)
    handle.append(batch())
    handle.directory.close()  # ends the threads that sync
    began = time.monotonic()
    with no_free_descriptor():
        assert not handle.flush(timeout_ms=30)
    assert time.monotonic() - began >= 0.03
    handle.close()


def test_watch_reports_the_missing_descriptor_when_none_is_free() -> None:
    with no_free_descriptor(), pytest.raises(OSError, match="no file descriptor is left"):
        PartitionWatch()


@pytest.mark.parametrize("busy", [False, True])
def test_log_is_retired_when_no_descriptor_is_left(tmp_path: Path, busy: bool) -> None:
    """A log that is not retired would keep its directory under its name, although its manager has forgotten it."""
    handle = led(tmp_path)
    handle.append(batch())
    if busy:
        move.hold_still(handle)  # the log looks as if it had a job
    retiring = threading.Thread(target=handle.retire, daemon=True)
    with no_free_descriptor():
        retiring.start()
        wait_until(lambda: handle.role == "gone")
        if busy:
            move.go_on(handle)
        retiring.join(30)
    assert not retiring.is_alive()
    assert handle.state == "closed"
    handle.directory.close()
