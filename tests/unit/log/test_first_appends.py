"""First appends to logs. One job opens many logs together, and the files that it creates survive a power cut. If file
descriptors run out, a log refuses appends only for a time."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable

import pytest

from kafkacore._fast.base.made_ids import made_id
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.index_files import aborted_transactions
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage import partition_metadata
from kafkacore.storage.log_manager import LogManager
from seeds import SEED
from transactions import ABORT, marker, records

KAFKA_STORAGE_ERROR = 56
PRODUCER = 4711
LOGS = 70  # more than a pool thread opens in one batch
TOPIC_ID = Uuid.random()
SETTINGS = LogSettings(segment_bytes=1024, flush_messages=1)


def batch(value: bytes = b"v" * 80) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp=1_700_000_000_000, key=b"k", value=value)
    return builder.build()


def start(disk: SimulatedDisk, count: int = 1) -> tuple[LogManager, list[PartitionHandle]]:
    manager = LogManager(disk.environment(), ["/data"], lambda topic: SETTINGS, files=disk)
    manager.load()
    handles = manager.create("orders", TOPIC_ID, range(count))
    for handle in handles:
        handle.become_leader(1, handle.leader_epoch + 1 + (handle.leader_epochs() or [(0, 0)])[-1][0])
    return manager, handles


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def open_all(disk: SimulatedDisk, handles: list[PartitionHandle]) -> None:
    for handle in handles:
        handle.open_ahead()
    wait_for(lambda: disk.is_dead or all(each.state == "open" for each in handles), "the logs do not open")


def operations_a_log(count: int) -> float:
    disk = new_disk()
    manager, handles = start(disk, count)
    before = disk.operations
    disk.slow_down(200)  # the other logs gather while the first ones open
    open_all(disk, handles)
    disk.slow_down(0)
    spent = (disk.operations - before) / count
    manager.close()
    return spent


def test_many_logs_share_the_sync_of_their_directory() -> None:
    """A log that opens alone needs four syncs: two small files, its directory and the log directory. A log that opens
    together with others needs only three."""
    alone, together = operations_a_log(1), operations_a_log(LOGS)
    assert alone - 1 <= together <= alone - 0.6


def test_first_appends_to_many_logs_survive_a_power_cut_at_any_moment() -> None:
    disk = new_disk()
    manager, handles = start(disk, 5)
    first = disk.operations
    open_all(disk, handles)
    assert all(handle.append(batch(), acks=-1).error == 0 for handle in handles)
    last = disk.operations
    manager.close()
    for cut in range(first, last + 1):
        disk = new_disk()
        manager, handles = start(disk, 5)
        disk.cut_power_at(cut)
        open_all(disk, handles)
        results = [handle.append(batch(), acks=-1) for handle in handles]
        kept = [r.error == 0 and h.high_watermark > 0 for r, h in zip(results, handles, strict=True)]
        disk.cut_power()
        manager.close()
        del manager, handles
        disk.restart(SEED * 1000 + cut, ordered=False)
        manager, handles = start(disk, 5)
        for handle, is_kept in zip(handles, kept, strict=True):
            records = list(Batches(handle.read(0, 1 << 20).records))
            assert len(records) >= is_kept
            assert handle.topic_id == TOPIC_ID
            assert handle.append(batch(), acks=-1).error == 0
        manager.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_first_append_without_file_descriptors_is_refused_and_succeeds_later(error: int) -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    for after in range(12):  # fails the open of each file in turn
        disk.fail("names", error, after)
        refused = handle.append(batch(), acks=-1)
        if refused.error == 0:
            break
        assert (refused.error, handle.state, handle.directory.offline_errno) == (KAFKA_STORAGE_ERROR, "lazy", 0)
        assert handle.end_offset == 0
        disk.fail("names", 0)
        wait_until_it_takes(handle, probe=False)
    disk.fail("names", 0)
    wait_until_it_takes(handle, probe=True)
    assert handle.directory.offline_errno == 0
    manager.check_directories()
    count = handle.end_offset
    assert len(list(Batches(handle.read(0, 1 << 20).records))) == count >= 1
    manager.close()


def wait_until_it_takes(handle: PartitionHandle, *, probe: bool) -> None:
    """Waits until the log accepts appends. It refuses them for a moment before it tries to open its files again."""
    if probe:
        wait_for(lambda: handle.append(batch(), acks=-1).error == 0, "the append is refused for ever")
    else:
        time.sleep(0.11)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_roll_without_file_descriptors_is_refused_and_succeeds_later(error: int) -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    while len(handle.segments()) < 2:
        assert handle.append(batch(), acks=-1).error == 0
    disk.fail("names", error)
    refusals = 0
    for _ in range(20):
        result = handle.append(batch(), acks=-1)
        assert result.error in (0, KAFKA_STORAGE_ERROR)
        refusals += result.error != 0
    assert refusals > 0
    assert (len(handle.segments()), handle.directory.offline_errno) == (2, 0)
    end = handle.end_offset
    disk.fail("names", 0)
    wait_for(lambda: handle.append(batch(), acks=-1).error == 0, "the append is refused for ever")
    assert len(handle.segments()) == 3
    assert len(list(Batches(handle.read(0, 1 << 20).records))) >= 1
    assert handle.end_offset == end + 1
    manager.close()


def test_truncation_waits_for_file_descriptors() -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    while len(handle.segments()) < 4:
        assert handle.append(batch(), acks=-1).error == 0
    disk.fail("names", errno.EMFILE)
    cut = threading.Thread(target=handle.truncate_to, args=(3,))
    cut.start()
    wait_for(lambda: handle.end_offset == 3, "the log was not cut")
    assert cut.is_alive()
    disk.fail("names", 0)
    cut.join(30)
    assert not cut.is_alive()
    assert (handle.end_offset, handle.directory.offline_errno) == (3, 0)
    assert handle.append(batch(), acks=-1).first_offset == 3
    manager.close()


def sized(keep: int) -> LogSettings:
    """Returns settings with which retention keeps `keep` bytes."""
    return LogSettings(segment_bytes=1024, flush_messages=1, retention_ms=-1, retention_bytes=keep)


@pytest.mark.parametrize("change", ["DeleteRecords", "retention"])
def test_deletion_of_records_waits_for_file_descriptors(change: str) -> None:
    """The log no longer has the dropped segments, so a later deletion would not remove their files. If they stayed, a
    restart would bring the records back."""
    disk = new_disk()
    manager, (handle,) = start(disk)
    while len(handle.segments()) < 6:
        assert handle.append(batch(), acks=-1).error == 0
    left = handle.segments()[-2:]
    handle.configure(sized(sum(segment.size_bytes for segment in left)))
    disk.fail("names", errno.EMFILE)
    if change == "retention":
        deletion = threading.Thread(target=handle.delete_old_segments)
    else:
        deletion = threading.Thread(target=handle.delete_records, args=(left[0].base_offset,))
    deletion.start()
    wait_for(lambda: handle.log_start_offset == left[0].base_offset, "the records were not hidden")
    assert deletion.is_alive()
    disk.fail("names", 0)
    deletion.join(30)
    assert not deletion.is_alive()
    logs = [f"{segment.base_offset:020}.log" for segment in left]
    assert sorted(name for name in disk.list("/data/orders-0") if name.endswith(".log")) == logs
    assert (handle.state, handle.directory.offline_errno) == ("open", 0)
    manager.close()


def test_retention_takes_the_directory_offline_when_a_segment_cannot_be_removed() -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    while len(handle.segments()) < 6:
        assert handle.append(batch(), acks=-1).error == 0
    handle.configure(sized(1024))
    disk.fail("names", errno.EIO, 1)
    with pytest.raises(OSError, match="offline"):
        handle.delete_old_segments()
    assert (handle.state, handle.directory.offline_errno) == ("failed", errno.EIO)
    disk.fail("names", 0)
    files = disk.list("/data/orders-0")
    handle.configure(sized(0))
    assert handle.delete_old_segments() == 0, "it would leave a gap"
    assert disk.list("/data/orders-0") == files
    manager.close()


def aborted(disk: SimulatedDisk) -> list[tuple[int, int]]:
    """Returns the producer id and the first offset of each aborted transaction in the transaction index."""
    data = disk.read(f"/data/orders-0/{0:020}.txnindex")
    return [(entry[0], entry[1]) for entry in aborted_transactions(data)]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_abort_marker_without_file_descriptors_is_refused_and_succeeds_later(error: int) -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    assert handle.append(records(0, PRODUCER), origin="transaction").error == 0
    disk.fail("names", error)
    assert handle.append(marker(0, PRODUCER, ABORT), origin="coordinator").error == KAFKA_STORAGE_ERROR
    assert (handle.end_offset, handle.last_stable_offset) == (2, 0)
    assert (handle.state, handle.directory.offline_errno) == ("open", 0)
    assert handle.append(records(0, PRODUCER, sequence=2), origin="transaction").error == 0, "needs no other file"
    disk.fail("names", 0)
    assert handle.append(marker(0, PRODUCER, ABORT), origin="coordinator").error == 0
    assert aborted(disk) == [(PRODUCER, 0)]
    assert handle.last_stable_offset == 5
    manager.close()


@pytest.mark.parametrize("begins", [True, False])
def test_follower_appends_an_abort_marker_when_a_file_descriptor_is_free_again(begins: bool) -> None:
    """The transaction begins in the same append as its marker, or in an earlier one."""
    disk = new_disk()
    manager, (handle,) = start(disk)
    parts = [records(0, PRODUCER), marker(2, PRODUCER, ABORT)]
    end = 0 if begins else 2
    if begins:
        handle.open_ahead()
        wait_for(lambda: handle.state == "open", "the log does not open")
        parts = [b"".join(parts)]
    else:
        assert handle.append_replicated(parts.pop(0), 9).error == 0
    disk.fail("names", errno.EMFILE)
    assert handle.append_replicated(parts[0], 9).error == KAFKA_STORAGE_ERROR
    assert (handle.end_offset, handle.state, handle.directory.offline_errno) == (end, "open", 0)
    disk.fail("names", 0)
    assert handle.append_replicated(parts[0], 9).error == 0
    assert aborted(disk) == [(PRODUCER, 0)]
    manager.close()


def test_abort_marker_without_a_transaction_creates_no_transaction_index() -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    assert handle.append(batch()).error == 0
    assert handle.append(marker(0, PRODUCER, ABORT), origin="coordinator").error == 0
    assert handle.append_replicated(marker(2, PRODUCER, ABORT), 9).error == 0
    assert [name for name in disk.list("/data/orders-0") if name.endswith(".txnindex")] == []
    manager.close()


def test_start_of_a_new_log_is_not_checkpointed_before_the_log_has_files() -> None:
    """Otherwise a crash could leave the start offset behind without the log. If another log then got this name, a load
    would remove the records of that log below the start offset."""
    disk = new_disk()
    manager, (handle,) = start(disk)
    disk.fail("names", errno.EMFILE)
    cut = threading.Thread(target=handle.truncate_fully, args=(6,))
    cut.start()
    wait_for(lambda: handle.end_offset == 6, "the log did not begin anew")
    assert cut.is_alive()
    assert handle.log_start_to_write() == -1
    disk.fail("names", 0)
    cut.join(30)
    assert not cut.is_alive()
    assert [each.base_offset for each in handle.segments()] == [6]
    manager.close()


def test_checkpoint_without_file_descriptors_is_written_by_the_next_round() -> None:
    disk = new_disk()
    manager, (handle,) = start(disk)
    assert handle.append(batch(), acks=-1).error == 0
    disk.fail("names", errno.EMFILE)
    manager.checkpoint_high_watermarks()
    manager.check_directories()
    assert handle.directory.offline_errno == 0
    disk.fail("names", 0)
    manager.checkpoint_high_watermarks()
    assert b"orders 0 1" in disk.read("/data/replication-offset-checkpoint")
    manager.close()


@pytest.mark.parametrize("operations", range(10))
def test_log_gets_its_topic_id_when_it_is_being_opened(operations: int) -> None:
    disk = new_disk()
    manager = LogManager(disk.environment(), ["/data"], lambda topic: SETTINGS, files=disk)
    manager.load()
    (handle,) = manager.create("orders", made_id("orders"), [0])
    handle.become_leader(1, 1)
    disk.slow_down(2000)
    before = disk.operations
    handle.open_ahead()
    wait_for(lambda: disk.operations >= before + operations, "the log does not open")
    handle.assign_topic_id(TOPIC_ID)
    disk.slow_down(0)
    assert handle.append(batch()).error == 0
    assert partition_metadata.read("/data/orders-0", disk) == TOPIC_ID
    manager.close()
