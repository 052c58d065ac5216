"""Many threads use one log at the same time: appends, reads, rolls, deletions, flushes and truncations."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.fault_disk import FaultDisk
from kafkacore.storage import log_loader

NOW = 1_700_000_000_000
OFFSET_OUT_OF_RANGE = 1
BATCHES = 400
WRITERS = 4


def batch(key: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(3):
        builder.append(timestamp=NOW, key=key, value=b"v" * 50)
    return builder.build()


def led(path: Path, **settings: int) -> PartitionHandle:
    directory = LogDirectory(Environment(), str(path))
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings(**settings))
    handle.become_leader(1, 0)
    return handle


def led_on_fault_disk(path: Path, **settings: int) -> tuple[FaultDisk, PartitionHandle]:
    """Returns a log with 60 batches in segments of 1000 bytes, and its disk."""
    disk = FaultDisk()
    directory = LogDirectory(disk.environment(), str(path))
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings(segment_bytes=1000, **settings))
    handle.become_leader(1, 0)
    for number in range(60):
        assert handle.append(batch(b"%d" % number)).error == 0
    return disk, handle


class Crew:
    """A group of threads that run until the last of the `workers` ends. Raises the first error of any thread."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.done = threading.Event()
        self.workers: list[threading.Thread] = []
        self.others: list[threading.Thread] = []

    def work(self, function: Callable[[], None]) -> None:
        self.workers.append(threading.Thread(target=self._guard, args=(function,)))

    def meanwhile(self, function: Callable[[], None]) -> None:
        def again() -> None:
            while not self.done.is_set():
                function()

        self.others.append(threading.Thread(target=self._guard, args=(again,)))

    def _guard(self, function: Callable[[], None]) -> None:
        try:
            function()
        except (AssertionError, OSError, MemoryError) as error:
            self.errors.append(error)
            self.done.set()

    def run(self) -> None:
        for thread in self.workers + self.others:
            thread.start()
        for thread in self.workers:
            thread.join(60)
        self.done.set()
        for thread in self.others:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.workers + self.others)
        for error in self.errors:
            raise error


def check_read(handle: PartitionHandle, start: int) -> int:
    """Checks that a read from `start` returns whole batches without a gap. Returns the offset after the last one."""
    read = handle.read(start, 4096)
    if read.error == OFFSET_OUT_OF_RANGE:
        return handle.log_start_offset
    assert read.error == 0
    for one in Batches(read.records):
        assert one.crc_ok
        assert one.base_offset <= start < one.next_offset
        start = one.next_offset
    return start


def check_greatest_timestamp(handle: PartitionHandle) -> None:
    assert handle.offset_of_max_timestamp()[:2] == (0, NOW)


def test_each_append_is_stored_once_and_in_order_under_concurrent_operations(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_bytes=5000, index_interval_bytes=300, flush_messages=10)
    crew = Crew()
    places: dict[int, bytes] = {}

    def writer(number: int) -> Callable[[], None]:
        def write() -> None:
            last = -1
            for i in range(BATCHES):
                key = b"%d-%d" % (number, i)
                result = handle.append(batch(key), acks=-1)
                assert result.error == 0
                assert result.first_offset > last
                last = result.last_offset
                places[result.first_offset] = key

        return write

    def reader() -> Callable[[], None]:
        at = [0]

        def read() -> None:
            at[0] = check_read(handle, at[0])
            if at[0] >= handle.end_offset:
                at[0] = 0

        return read

    for number in range(WRITERS):
        crew.work(writer(number))
    crew.meanwhile(reader())
    crew.meanwhile(reader())
    crew.meanwhile(lambda: handle.flush(10_000) or None)
    crew.meanwhile(lambda: handle.offset_by_time(1_700_000_000_000) and None)
    crew.run()
    assert sorted(places) == list(range(0, 3 * BATCHES * WRITERS, 3))
    at = 0
    while at < handle.end_offset:
        for one in Batches(handle.read(at, 1 << 20).records):
            assert next(iter(one)).key == places[one.base_offset]
            at = one.next_offset


def test_reader_never_sees_a_hole_when_segments_are_deleted_from_the_front(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_bytes=3000, index_interval_bytes=300, retention_bytes=20_000)
    crew = Crew()

    def write() -> None:
        for i in range(BATCHES):
            assert handle.append(batch(b"%d" % i)).error == 0

    position = [0]

    def read() -> None:
        position[0] = max(check_read(handle, position[0]), handle.log_start_offset)
        if position[0] >= handle.end_offset:
            position[0] = handle.log_start_offset

    crew.work(write)
    crew.work(write)
    crew.meanwhile(read)
    crew.meanwhile(lambda: handle.delete_old_segments() and None)
    crew.meanwhile(lambda: handle.delete_records(max(handle.high_watermark - 300, 0)) and None)
    crew.run()
    assert handle.end_offset == 3 * 2 * BATCHES
    assert handle.log_start_offset > 0


def test_truncation_among_appends_leaves_a_log_without_gaps(tmp_path: Path) -> None:
    handle = led(tmp_path, segment_bytes=3000, index_interval_bytes=300)
    crew = Crew()

    def write() -> None:
        for i in range(BATCHES):
            assert handle.append(batch(b"%d" % i)).error == 0

    def read() -> None:
        read = handle.read(max(handle.end_offset - 40, 0), 2000)
        # The error never says that a disk has failed. If a file was truncated, or deleted by a restart of the log, the
        # reader tries again.
        assert read.error in (0, OFFSET_OUT_OF_RANGE)

    crew.work(write)
    crew.work(write)
    crew.meanwhile(lambda: handle.truncate_to(max(handle.end_offset // 3 * 3 - 30, 0)))
    crew.meanwhile(read)
    crew.meanwhile(lambda: handle.offset_by_time(1_700_000_000_000) and None)
    crew.run()
    again = PartitionHandle(handle.directory, "orders", 0, handle.topic_id, handle.settings)
    log_loader.load(again, f"{tmp_path}/orders-0", clean=False)
    assert again.end_offset == handle.end_offset
    at = 0
    while at < again.end_offset:
        found = again.read(at, 1 << 20)
        for one in Batches(found.records):
            assert one.base_offset == at
            assert one.crc_ok
            at = one.next_offset


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_truncation_cuts_the_right_segment_when_the_first_segments_are_deleted_meanwhile(tmp_path: Path) -> None:
    disk, handle = led_on_fault_disk(tmp_path, retention_ms=-1)
    disk.slow_down(500_000)
    truncation = threading.Thread(target=handle.truncate_to, args=(120,))
    truncation.start()
    wait_for(lambda: handle.state == "rolling")
    assert handle.delete_records(90)[0] == 0
    assert handle.end_offset == 180, "the truncation must still read the disk while the records are deleted"
    disk.slow_down(0)
    truncation.join()
    assert (handle.log_start_offset, handle.end_offset, handle.state) == (90, 120, "open")
    assert handle.append(batch(b"next")).first_offset == 120
    at = 90
    while at < handle.end_offset:
        at = check_read(handle, at)
    handle.delete_old_segments()
    bases = sorted(int(each.name[:20]) for each in (tmp_path / "orders-0").glob("*.log"))
    assert len([base for base in bases if base <= 90]) == 1, "no segment holds only deleted records"


def test_log_that_begins_anew_keeps_its_file_when_an_old_segment_of_that_name_is_being_deleted(tmp_path: Path) -> None:
    disk, handle = led_on_fault_disk(tmp_path)
    last_deleted = handle.segments()[-3].base_offset
    disk.slow_down(10_000)
    deletion = threading.Thread(target=handle.delete_records, args=(170,))
    deletion.start()
    wait_for(lambda: handle.segments()[0].base_offset > last_deleted)
    handle.truncate_to(last_deleted)
    disk.slow_down(0)
    deletion.join()
    assert handle.append(batch(b"next")).first_offset == last_deleted
    assert (tmp_path / "orders-0" / f"{last_deleted:020d}.log").exists()


@pytest.mark.parametrize("first", ["DeleteRecords", "retention"])
def test_first_segments_are_removed_without_a_gap_when_two_threads_delete_them(tmp_path: Path, first: str) -> None:
    """If a gap remained after a crash, a load would drop all segments after the gap."""
    disk, handle = led_on_fault_disk(tmp_path, retention_ms=-1)

    def bases() -> list[int]:
        return [segment.base_offset for segment in handle.segments()]

    def files() -> list[int]:
        return sorted(int(each.name[:20]) for each in (tmp_path / "orders-0").glob("*.log"))

    before = bases()
    assert files() == before
    middle, last = before[len(before) // 2], before[-2]
    retained = sum(segment.size_bytes for segment in handle.segments() if segment.base_offset >= middle)
    handle.configure(LogSettings(segment_bytes=1000, retention_ms=-1, retention_bytes=retained))
    disk.slow_down(5_000)
    if first == "retention":
        deletions = [threading.Thread(target=handle.delete_old_segments)]
    else:
        deletions = [threading.Thread(target=handle.delete_records, args=(middle,))]
    deletions[0].start()
    wait_for(lambda: bases()[0] == middle)
    deletions.append(threading.Thread(target=handle.delete_records, args=(last,)))
    deletions[1].start()
    while any(deletion.is_alive() for deletion in deletions):
        found = files()
        assert found == before[len(before) - len(found) :]
    disk.slow_down(0)
    assert files() == bases() == before[-2:]


def test_directory_stays_online_when_a_log_begins_anew_during_a_retention_check(tmp_path: Path) -> None:
    """The check opens the time indexes of a loaded log while `truncate_fully` removes these files, the last ones
    first."""
    disk = FaultDisk()
    directory = LogDirectory(disk.environment(), str(tmp_path))
    settings = LogSettings(segment_bytes=1000, retention_ms=1)
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), settings)
    handle.become_leader(1, 0)
    for number in range(120):
        assert handle.append(batch(b"%d" % number)).error == 0
    high_watermark = handle.high_watermark
    handle.shut()
    handle = PartitionHandle(directory, "orders", 0, handle.topic_id, settings)
    log_loader.load(handle, str(tmp_path / "orders-0"), clean=True)
    handle.restore_high_watermark(high_watermark)
    disk.slow_down(2_000)
    check = threading.Thread(target=handle.delete_old_segments)
    check.start()
    handle.truncate_fully(100_000)
    disk.slow_down(0)
    check.join()
    assert (handle.state, directory.offline_errno, handle.end_offset) == ("open", 0, 100_000)


def test_reads_and_searches_see_all_records_during_the_first_append_after_a_load(tmp_path: Path) -> None:
    """The first append reads the end of the last segment again, while readers open the same files."""
    disk = FaultDisk()
    directory = LogDirectory(disk.environment(), str(tmp_path))
    handle = PartitionHandle(directory, "orders", 0, Uuid.random(), LogSettings(index_interval_bytes=300))
    handle.become_leader(1, 0)
    for number in range(60):
        assert handle.append(batch(b"%d" % number)).error == 0
    disk.slow_down(1_000)  # so slow that the append and the reads open the files at the same time
    for _ in range(20):
        end = handle.end_offset
        handle.shut()
        handle = PartitionHandle(directory, "orders", 0, handle.topic_id, handle.settings)
        log_loader.load(handle, str(tmp_path / "orders-0"), clean=True)
        handle.become_leader(1, handle.leader_epoch)
        crew = Crew()
        crew.work(lambda loaded=handle: loaded.append(batch(b"next")))
        crew.meanwhile(lambda loaded=handle, last=end - 3: check_read(loaded, last))
        crew.meanwhile(lambda loaded=handle: check_greatest_timestamp(loaded))
        crew.run()
        assert handle.end_offset == end + 3


def test_records_are_deleted_only_while_this_node_leads(tmp_path: Path) -> None:
    """After an election, another leader may have other records at the same offsets. So a deletion that checked its
    offset in one leadership must not happen in a later role."""
    handle = led(tmp_path)
    for number in range(2000):
        handle.append(batch(b"%d" % number))
    crew = Crew()

    def delete() -> None:
        for offset in range(1, handle.end_offset):
            handle.delete_records(offset)

    epochs = itertools.count(2)

    def change_roles() -> None:
        handle.become_follower(2, epoch := next(epochs), epoch)
        first = handle.log_start_offset
        starts = {handle.log_start_offset for _ in range(3)}
        assert starts == {first}, "records were deleted after this node had become a follower"
        handle.become_leader(1, epoch := next(epochs), epoch)

    crew.work(delete)
    crew.meanwhile(change_roles)
    crew.run()
