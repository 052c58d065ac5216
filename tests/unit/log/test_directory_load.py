"""Loading log directories: file names, topic ids, progress (KIP-831) and failures."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore._fast.base.uuid import ZERO, Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_load import LogFiles, read_topic_ids
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, list_directory, list_each
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.server.metrics import recovery_metrics
from kafkacore.storage import clean_shutdown, directory_load, names, partition_metadata
from kafkacore.storage.errors import LoadAbandoned, MalformedFileError
from kafkacore.storage.log_manager import LogManager
from processes import wait_until

SETTINGS = LogSettings(segment_bytes=1024)
SUFFIXES = [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".log.deleted",
            ".checkpoint.deleted", ".log.cleaned", ".index.swap", ".tmp", "", ".logs"]  # fmt: skip
NAMES = st.one_of(
    st.builds(
        lambda offset, digits, suffix: f"{offset:0{digits}d}{suffix}",
        st.one_of(st.integers(0, 9), st.integers((1 << 63) - 2, 1 << 64), st.just(10**19)),
        st.sampled_from([20, 20, 20, 20, 19, 21]),
        st.sampled_from(SUFFIXES),
    ),
    st.sampled_from(["partition.metadata", "leader-epoch-checkpoint", "x.swap", "\udcff.log", "größe.log", ""]),
)


def plainly(listed: list[str]) -> tuple[list[int], bool]:
    """Returns the expected content of LogFiles: the base offsets, and whether the directory has leftovers of
    interrupted operations."""
    parsed = [found for found in map(names.parse_file_name, listed) if found is not None]
    bases = {offset for offset, suffix in parsed if suffix == names.LOG}
    lone = any(
        suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX) and offset not in bases
        for offset, suffix in parsed
    )
    half_done = any(
        name.endswith((names.DELETED, names.CLEANED, names.SWAP)) and not name.endswith(".checkpoint.deleted")
        for name in listed
        if name.isascii()
    )
    return sorted(bases), lone or half_done


@given(st.lists(NAMES, unique=True, max_size=30))
def test_files_are_recognised_by_their_names(listed: list[str]) -> None:
    found = LogFiles(sorted(listed))
    assert (found.base_offsets, found.has_left_overs) == plainly(listed)


def test_listing_accepts_file_names_of_any_kind(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "to-b").symlink_to(tmp_path / "b")
    (tmp_path / "to-nowhere").symlink_to(tmp_path / "c")
    odd = os.fsdecode(b"\xff" + b"n" * 250)
    (tmp_path / odd).write_bytes(b"")
    many = [f"many-{i:04d}" for i in range(500)]
    for name in many:
        (tmp_path / name).write_bytes(b"")
    assert list_directory(str(tmp_path)) == sorted(["a", "b", "to-b", "to-nowhere", odd, *many])
    assert list_directory(str(tmp_path), only_directories=True) == ["b", "to-b"]
    with pytest.raises(NotADirectoryError, match="/a'"):
        list_directory(f"{tmp_path}/a")
    with pytest.raises(ValueError, match="null"):
        list_directory("a\0b")


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACg", True),
        ("version: 0\ntopic_id: _-Zz09AAAAAAAAAAAAAACg\n", True),
        ("topic_id: AAAAAAAAAAAAAAAAAAAACg\nversion: 0", False),  # the native code leaves this form to Python
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACh", False),  # an id leaves 4 of 132 bits unused; one is 1
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", False),  # the zero id belongs to no topic
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAA+/", False),
        ("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAACg", False),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACg\n\n", False),
        ("", False),
    ],
)
def test_topic_ids_are_read_as_they_are_written_to_partition_metadata(tmp_path: Path, text: str, is_read: bool) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / partition_metadata.NAME).write_text(text)
    directory = LogDirectory(Environment(), str(tmp_path))
    handles = [PartitionHandle(directory, "t", index, None, SETTINGS) for index in range(2)]
    assert read_topic_ids(handles) == [is_read, False]
    assert handles[1].topic_id == ZERO
    if is_read:
        assert handles[0].topic_id == partition_metadata.read(f"{tmp_path}/t-0")
    else:
        assert handles[0].topic_id == ZERO


def filled(disk: SimulatedDisk, partitions: int = 2, batches: int = 24) -> Uuid:
    """Makes logs, each with several segments, and does not write the file that marks a clean shutdown."""
    disk.make_directories("/data")
    manager = LogManager(disk.environment(), ["/data"], lambda topic: SETTINGS, files=disk)
    topic_id = Uuid.random()
    for handle in manager.create("orders", topic_id, range(partitions)):
        handle.become_leader(1, 5)
        for number in range(batches):
            builder = RecordBatchBuilder()
            builder.append(timestamp=1_700_000_000_000 + number, key=b"k", value=b"v" * 200)
            assert handle.append(builder.build()).error == 0
        handle.flush()
    return topic_id


def shown(manager: LogManager) -> dict[str, int]:
    return {sample.mbean: int(sample.value) for sample in recovery_metrics(manager)}  # type: ignore[call-overload]


def beans(threads: int) -> Iterator[str]:
    yield "kafka.log:type=LogManager,name=remainingLogsToRecover,dir=/data"
    for number in range(threads):
        yield f"kafka.log:type=LogManager,name=remainingSegmentsToRecover,dir=/data,threadNum={number}"


def test_metrics_report_the_remaining_logs_and_segments_during_recovery(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkacore.storage")
    disk = SimulatedDisk()
    filled(disk, batches=120)
    manager = manager_of(disk, threads=3)
    assert shown(manager) == {}
    disk.slow_down(2000)
    loading = threading.Thread(target=manager.load)
    loading.start()
    logs, *segments = beans(3)

    def all_at_work() -> dict[str, int] | None:
        now = shown(manager)
        return now if now.get(segments[0], 0) > 1 and now.get(segments[1], 0) > 1 else None

    first = wait_until(all_at_work, what="the recovery of two logs at the same time")
    assert sorted(first) == sorted(beans(3))
    assert (first[logs], first[segments[2]]) == (2, 0)
    whole = first[segments[0]]
    later = wait_until(lambda: (now := shown(manager)).get(segments[0], 0) < whole and now, what="one segment done")
    assert later[logs] <= 2
    disk.slow_down(0)
    loading.join()
    assert shown(manager) == {}
    assert "/data has no .kafka_cleanshutdown: the node recovers its 2 logs" in caplog.text
    assert "loaded 2 logs in" in caplog.text
    manager.close()


def test_long_load_logs_its_progress(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "kafkacore.storage")
    monkeypatch.setattr(directory_load, "PROGRESS_S", 0.01)
    disk = SimulatedDisk()
    filled(disk, partitions=3)
    told = threading.Event()

    def settings_of(topic: str) -> LogSettings:
        """Returns the log settings. When the manager loads the third log, first waits until the progress line has been
        logged."""
        seen.append(topic)
        if len(seen) == 3:
            told.wait(20)
        return SETTINGS

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "1 of 3 logs remain" in record.getMessage():
                told.set()

    seen: list[str] = []
    handler = Told()
    logging.getLogger("kafkacore.storage").addHandler(handler)
    try:
        manager = LogManager(disk.environment(), ["/data"], settings_of, recovery_threads=1, files=disk)
        manager.load()
    finally:
        logging.getLogger("kafkacore.storage").removeHandler(handler)
    assert told.is_set()
    manager.close()


def manager_of(disk: SimulatedDisk, threads: int = 2) -> LogManager:
    return LogManager(disk.environment(), ["/data"], lambda topic: SETTINGS, recovery_threads=threads, files=disk)


def test_load_ends_before_the_next_segment_when_it_is_abandoned() -> None:
    disk = SimulatedDisk()
    filled(disk, batches=120)
    manager = manager_of(disk, threads=1)
    _, segments = beans(1)
    disk.slow_down(2000)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(manager.load)
        wait_until(lambda: shown(manager).get(segments, 0) > 20, what="the recovery of a log with many segments")
        manager.abandon_load()
        with pytest.raises(LoadAbandoned):
            loading.result(30)
    disk.slow_down(0)
    assert list(manager) == [], "not even the first log is loaded"
    with pytest.raises(LoadAbandoned):
        manager.load()
    manager.close()
    assert manager.directories() == [("/data", True)]
    assert not clean_shutdown.exists("/data", disk)
    again = manager_of(disk)
    again.load()
    assert [handle.end_offset for handle in again] == [120, 120]
    again.close()


@pytest.mark.parametrize("rebuilds", [False, True])
def test_directory_stays_clean_after_a_failed_load_only_when_no_index_was_rebuilt(rebuilds: bool) -> None:
    disk = SimulatedDisk()
    filled(disk)
    manager = manager_of(disk)
    manager.load()
    manager.close()
    if rebuilds:
        disk.unlink(f"/data/orders-0/{0:020d}.timeindex")
    disk.write("/data/orders-1/leader-epoch-checkpoint", b"x")
    again = manager_of(disk, threads=1)
    with pytest.raises(MalformedFileError):
        again.load()
    again.close()
    assert clean_shutdown.exists("/data", disk) is not rebuilds


def test_log_takes_a_topic_id_that_only_python_can_parse() -> None:
    disk = SimulatedDisk()
    topic_id = filled(disk, partitions=2)
    disk.write("/data/orders-0/partition.metadata", f"topic_id:{topic_id}\nversion : 0\n".encode())
    disk.unlink("/data/orders-1/partition.metadata")
    manager = manager_of(disk)
    manager.load()
    ids = {handle.index: handle.topic_id for handle in manager}
    assert ids == {0: topic_id, 1: ZERO}
    manager.close()


def test_malformed_topic_id_is_refused_with_its_path() -> None:
    disk = SimulatedDisk()
    filled(disk)
    disk.write("/data/orders-1/partition.metadata", b"version: 0\ntopic_id: ?")
    with pytest.raises(MalformedFileError, match=r"/data/orders-1/partition\.metadata"):
        manager_of(disk).load()


def test_load_takes_the_whole_directory_offline_when_its_disk_fails() -> None:
    disk = SimulatedDisk()
    filled(disk, partitions=3)
    disk.fail("read", after=9)
    manager = manager_of(disk)
    manager.load()
    assert manager.directories() == [("/data", False)]
    assert manager.loads == []
    manager.close()


def test_start_fails_when_two_directories_name_the_same_partition() -> None:
    assert names.parse_partition_directory("orders-07") is None
    assert names.parse_partition_directory("orders-0") == ("orders", 0, names.Kind.LIVE)
    assert names.parse_partition_directory("orders-10") == ("orders", 10, names.Kind.LIVE)


def open_files(below: Path) -> list[str]:
    held = (os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd"))
    return sorted(
        os.path.relpath(os.readlink(one), below)
        for one in held
        if os.path.islink(one) and os.readlink(one).startswith(f"{below}/")
    )


@pytest.mark.parametrize("clean", [True, False])
def test_log_keeps_one_file_open_after_its_first_append(tmp_path: Path, clean: bool) -> None:
    """So a node can have as many partitions as possible before it reaches the limit of open files (RLIMIT_NOFILE)."""

    def started() -> LogManager:
        manager = LogManager(Environment(), [str(tmp_path)], lambda topic: SETTINGS)
        manager.load()
        return manager

    def append(handle: PartitionHandle) -> None:
        builder = RecordBatchBuilder()
        builder.append(timestamp=1_700_000_000_000 + handle.end_offset, key=b"k", value=b"v" * 300)
        assert handle.append(builder.build()).error == 0

    manager = started()
    (handle,) = manager.create("orders", Uuid.random(), [0])
    handle.become_leader(1, 5)
    for _ in range(7):
        append(handle)
    handle.flush()
    segments = [f"orders-0/{one.base_offset:020d}.log" for one in handle.segments()]
    assert len(segments) > 2
    assert open_files(tmp_path) == segments
    if clean:
        manager.close()
        assert open_files(tmp_path) == segments
    del handle, manager
    assert open_files(tmp_path) == []

    manager = started()
    assert open_files(tmp_path) == []
    handle = manager.get("orders", 0)  # type: ignore[assignment]
    assert handle.end_offset == 7
    handle.become_leader(1, 6)
    append(handle)
    wait_until(lambda: open_files(tmp_path) == segments[-1:], what="all files but the last segment closed")
    assert handle.read(7, 1).first_offset == 7
    manager.close()


def test_listing_many_directories_equals_listing_each(tmp_path: Path) -> None:
    paths = []
    for number in range(5):
        path = tmp_path / f"t-{number}"
        path.mkdir()
        paths.append(str(path))
        for each in range(number * 40):
            (path / f"{each:020d}.log").write_bytes(b"")
    assert list_each(paths) == [list_directory(path) for path in paths]
    assert list_each([]) == []
    with pytest.raises(FileNotFoundError, match="/t-9'"):
        list_each([paths[0], f"{tmp_path}/t-9", f"{tmp_path}/t-8"])
    with pytest.raises(ValueError, match="null"):
        list_each([paths[0], "a\0b"])
