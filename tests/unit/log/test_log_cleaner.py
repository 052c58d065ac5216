"""Which logs the cleaner chooses, and what happens when a log is truncated, moved, deleted or damaged during a
compaction."""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
from collections.abc import Iterator

import pytest

from compacting import ABORT, read_log
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.compact.compaction import Compaction, CompactionCancelled
from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.segment import live_count
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.world.environment import ManualClock
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.config import BrokerConfig
from kafkacore.storage.checkpoints import CLEANER_OFFSET, RECOVERY_POINT, OffsetCheckpoint
from kafkacore.storage.cleaner import CleanerSettings, LogCleaner, cleaner_settings
from kafkacore.storage.cleaner_choice import dirty_section
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.names import Kind
from processes import wait_until
from transactions import marker

NOW = 1_700_000_000_000
KEYS = 5
TOPIC_ID = Uuid.random()
TIMEOUT_S = 30


def compacted(**changes: object) -> LogSettings:
    wanted = {"segment_bytes": 600, "index_interval_bytes": 100, "compact_policy": True, "delete_policy": False}
    return LogSettings(**(wanted | changes))  # type: ignore[arg-type]


class Node:
    """Logs on a simulated disk, with a clock that stands still, and a cleaner that checks the logs only when a test
    asks it to."""

    def __init__(self, disk: SimulatedDisk | None = None, **changes: object) -> None:
        self.disk = disk or SimulatedDisk()
        for path in ("/a", "/b"):
            self.disk.make_directories(path)
        self.clock = ManualClock(wall_ms=NOW)
        self.settings = compacted(**changes)
        environment = self.disk.environment(self.clock)
        self.manager = LogManager(environment, ["/a", "/b"], lambda topic: self.settings, files=self.disk)
        self.manager.load()
        self.cleaner = LogCleaner(self.manager, environment, CleanerSettings())

    def log(self, topic: str = "orders", path: str = "/a") -> PartitionHandle:
        (handle,) = self.manager.create(topic, TOPIC_ID, [0], path, self.settings)
        handle.become_leader(1, 1 + (handle.leader_epochs() or [(0, 0)])[-1][0])
        return handle

    def clean(self) -> None:
        self.cleaner.check()
        assert self.cleaner.settle(TIMEOUT_S)

    def cleaned(self, path: str = "/a") -> dict[tuple[str, int], int]:
        return OffsetCheckpoint(path, CLEANER_OFFSET, self.disk).read()

    def close(self) -> None:
        self.cleaner.close()
        self.manager.close()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def batch(number: int, timestamp_ms: int = NOW, key: bytes | None = None, value: bytes | None = b"v" * 40) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp_ms, b"%d" % (number % KEYS) if key is None else key, value)
    return bytes(builder.build())


def fill(handle: PartitionHandle, count: int = 40, first: int = 0) -> None:
    for number in range(first, first + count):
        assert handle.append(batch(number)).error == 0
    assert handle.flush(10_000)


def keys_of(handle: PartitionHandle) -> list[bytes]:
    return [record[2] for one in read_log(handle) for record in one.records]


def latest_values(handle: PartitionHandle) -> dict[bytes, int]:
    return {record[2]: record[0] for one in read_log(handle) for record in one.records}


# --- the choice of logs ---


def test_cleaner_keeps_the_last_record_of_each_key_and_writes_its_checkpoint(node: Node) -> None:
    handle = node.log()
    fill(handle)
    before, size = latest_values(handle), handle.size_bytes
    active = handle.segments()[-1].base_offset
    node.clean()
    assert node.cleaned() == {("orders", 0): active}
    assert latest_values(handle) == before
    assert handle.size_bytes < size / 2
    assert len([offset for offset in latest_values(handle).values() if offset < active]) <= KEYS
    # The work is done, and the cleaner's thread has ended.
    assert dirty_section(handle, active, NOW) is not None
    assert not [one.name for one in threading.enumerate() if one.name.startswith("kafkacore-cleaner")]


def test_log_is_compacted_when_enough_of_it_is_dirty(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.clean()
    before = node.cleaned()
    handle.configure(compacted(min_cleanable_dirty_ratio=0.99))
    fill(handle, 20, 40)
    node.clean()
    assert node.cleaned() == before
    assert 0.5 < node.cleaner.max_dirty_ratio <= 0.99
    handle.configure(compacted(min_cleanable_dirty_ratio=0.3))
    node.clean()
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}


def test_cleaner_takes_the_dirtiest_log_first(node: Node) -> None:
    dirty, dirtier = node.log("dirty"), node.log("dirtier")
    fill(dirty)
    node.clean()
    fill(dirty, 12, 40)
    fill(dirtier)
    first = next(iter(node.cleaner._due()))
    assert first.handle is dirtier
    assert {one.handle for one in node.cleaner._due()} == {dirty, dirtier}


@pytest.mark.parametrize("policy", [{"compact_policy": False, "delete_policy": True}, {"compact_policy": False}])
def test_cleaner_leaves_logs_without_compaction_alone(policy: dict[str, bool]) -> None:
    node = Node(**policy)
    handle = node.log()
    fill(handle)
    size = handle.size_bytes
    node.clean()
    assert (handle.size_bytes, node.cleaned()) == (size, {})
    node.close()


def test_disabled_cleaner_does_nothing(node: Node) -> None:
    fill(node.log())
    node.cleaner.configure(CleanerSettings(enabled=False))
    node.clean()
    assert node.cleaned() == {}
    node.cleaner.configure(CleanerSettings())
    node.clean()
    assert node.cleaned() != {}


def test_retention_applies_to_a_log_with_compact_and_delete(node: Node) -> None:
    handle = node.log()
    handle.configure(compacted(delete_policy=True, retention_ms=1000))
    fill(handle)
    node.clean()
    assert handle.log_start_offset == 0
    node.clock.advance_ms(10_000)
    assert node.manager.delete_old_segments() > 0
    assert handle.log_start_offset > 0


def test_records_wait_for_min_compaction_lag(node: Node) -> None:
    handle = node.log()
    handle.configure(compacted(min_compaction_lag_ms=5000))
    fill(handle)
    node.clean()
    assert node.cleaned() == {}
    node.clock.advance_ms(6000)
    node.clean()
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}


def test_log_is_compacted_at_max_compaction_lag_when_its_ratio_is_low(node: Node) -> None:
    handle = node.log()
    handle.configure(compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000))
    fill(handle)
    node.clean()
    assert node.cleaned() == {}
    node.clock.advance_ms(61_000)
    node.clean()
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}
    assert node.cleaner.max_delay_ms in (0, 1000)


def test_cleaner_stops_before_an_open_transaction(node: Node) -> None:
    handle = node.log()
    fill(handle, 15)
    opened = handle.end_offset
    builder = RecordBatchBuilder(
        producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, base_offset=opened,
        partition_leader_epoch=0,
    )  # fmt: skip
    builder.append(NOW, b"0", b"open")
    assert handle.append_replicated(builder.build(), 9).error == 0
    fill(handle, 20, 15)
    node.clean()
    assert node.cleaned()["orders", 0] <= opened
    assert opened in [one.base_offset for one in read_log(handle)]
    assert handle.append_replicated(marker(handle.end_offset, 7, ABORT), 9).error == 0
    fill(handle, 20, 35)
    node.clean()
    assert node.cleaned()["orders", 0] == handle.segments()[-1].base_offset
    assert b"open" not in [record[3] for one in read_log(handle) for record in one.records]


# --- changes during a compaction ---


@contextlib.contextmanager
def half_done(handle: PartitionHandle) -> Iterator[Compaction]:
    """Returns a compaction that has copied a group of segments but not yet swapped it in."""
    keys = KeyOffsets(1 << 20, 0.9, bytes(16))
    upper_bound = handle.segments()[-1].base_offset
    keys.begin(upper_bound)
    compaction = Compaction(handle, keys, 0, upper_bound, now_ms=NOW, delete_retention_ms=0, buffer_bytes=4096)
    while compaction.phase != "swap":
        compaction.step(1000)
    yield compaction
    compaction.close()


def truncate(node: Node, handle: PartitionHandle, offset: int) -> None:
    """Truncates a log as in a running node, whose upkeep writes checkpoints after each truncation."""
    node.manager.await_cuts(True)
    handle.truncate_to(offset)
    assert handle.awaits_checkpoint
    assert node.manager.checkpoint_cuts()


def test_truncation_cancels_a_compaction_and_lowers_the_checkpoint(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.clean()
    fill(handle, 40, 40)
    with half_done(handle) as compaction:
        truncate(node, handle, 10)
        assert 0 < node.cleaned()["orders", 0] <= 10
        with pytest.raises(CompactionCancelled):
            compaction.step(1000)
    assert handle.end_offset <= 10
    assert not [name for name in node.disk.list("/a/orders-0") if name.endswith((".cleaned", ".swap"))]
    fill(handle, 30, 80)
    node.clean()
    assert node.cleaned()["orders", 0] == handle.segments()[-1].base_offset


@pytest.mark.parametrize("restarts", ["no", "after-the-truncation", "before-the-checkpoint"])
def test_deleted_key_stays_deleted_when_a_follower_truncates_its_compacted_records(restarts: str) -> None:
    node = Node(delete_retention_ms=1000)
    handle = node.log()
    fill(handle, 10)
    assert handle.append(batch(0, key=b"gone")).error == 0
    fill(handle, 40, 10)
    node.clean()
    cleaned = node.cleaned()["orders", 0]
    assert cleaned > 30
    node.manager.await_cuts(True)
    assert handle.become_follower(2, 9)
    assert handle.truncate_as_follower(20, 9) == 0
    if restarts != "before-the-checkpoint":
        assert node.manager.checkpoint_cuts()
        assert node.cleaned()["orders", 0] <= 20
    if restarts != "no":
        disk = node.disk
        disk.cut_power()
        disk.restart()
        node = Node(disk, delete_retention_ms=1000)
        assert node.cleaned()["orders", 0] <= 20
    (handle,) = node.manager.create("orders", TOPIC_ID, [0])
    handle.become_leader(1, 10)
    assert handle.end_offset <= 20
    # The tombstone is between the end of the truncated log and the compacted offset that the log had before.
    assert handle.append(batch(0, key=b"gone", value=None)).error == 0
    fill(handle, 60, 20)
    assert handle.end_offset > cleaned
    for number in range(3):
        node.clean()
        node.clock.advance_ms(10_000)
        fill(handle, 20, 100 + 20 * number)
    assert b"gone" not in keys_of(handle)
    node.close()


def test_truncation_without_a_checkpointed_recovery_point_lowers_the_compacted_offset_too() -> None:
    """The recovery point of a log can be below its compacted offset if Apache Kafka wrote the directory, or if the
    checkpoint file was damaged."""
    node = Node()
    fill(node.log())
    node.clean()
    disk = node.disk
    disk.cut_power()
    disk.restart()
    disk.unlink(f"/a/{RECOVERY_POINT}")
    node = Node(disk)
    truncate(node, node.log(), 10)
    assert node.cleaned()["orders", 0] <= 10
    node.close()


def test_compacted_offset_is_not_above_the_recovery_point_after_a_truncation(node: Node) -> None:
    """Otherwise a second truncation could go below the compacted offset without waiting for a checkpoint."""
    handle = node.log()
    fill(handle)
    node.clean()
    for end in (30, 20, 10):
        truncate(node, handle, end)
        points = OffsetCheckpoint("/a", RECOVERY_POINT, node.disk).read()
        assert node.cleaned()["orders", 0] <= points["orders", 0] <= end


def test_round_writes_no_checkpoint_when_its_log_is_truncated_meanwhile(node: Node) -> None:
    handle, key = node.log(), ("orders", 0)
    fill(handle)
    compactions, truncations = node.manager.compactions, handle.truncations
    assert compactions.begin(key, handle)
    handle.truncate_to(10)
    fill(handle, 40, 40)
    compactions.end(key, handle, 30, truncations)
    assert compactions.known_until(key) is None


def test_round_is_cancelled_when_its_log_is_truncated_before_it_begins(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The section to compact was chosen before the truncation."""
    handle = node.log()
    fill(handle)
    begin = node.manager.compactions.begin

    def truncated_first(key: tuple[str, int], log: PartitionHandle) -> bool:
        log.truncate_to(10)
        fill(log, 40, 40)
        return begin(key, log)

    monkeypatch.setattr(node.manager.compactions, "begin", truncated_first)
    size = handle.size_bytes
    node.clean()
    assert (node.cleaned(), handle.size_bytes > size) == ({}, True)
    monkeypatch.undo()
    node.clock.advance_ms(node.cleaner.backoff_ms)
    node.clean()
    assert node.cleaned()["orders", 0] == handle.segments()[-1].base_offset


def test_deletion_of_a_log_cancels_its_compaction_and_removes_its_checkpoint(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.clean()
    fill(handle, 40, 40)
    with half_done(handle) as compaction:
        node.manager.delete([("orders", 0)])
        assert node.cleaned() == {}
        with pytest.raises(CompactionCancelled):
            compaction.step(1000)


def test_segments_deleted_during_a_compaction_do_not_come_back(node: Node) -> None:
    handle = node.log()
    fill(handle)
    with half_done(handle) as compaction:
        assert handle.delete_records(20)[0] == 0
        with pytest.raises(CompactionCancelled):
            compaction.step(1000)
    assert handle.segments()[0].base_offset > 0
    assert handle.read(0).error == 1
    node.clean()
    assert latest_values(handle).keys() == {b"%d" % i for i in range(KEYS)}


def test_checkpoint_entry_moves_with_its_log(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.clean()
    before = node.cleaned()
    node.manager.create_future(("orders", 0), "/b")
    while node.manager.futures.copy(("orders", 0), 1 << 20):
        continue
    with half_done(handle) as compaction:
        node.manager.replace_with_future(("orders", 0))
        with pytest.raises(CompactionCancelled):
            compaction.step(1000)
    assert (node.cleaned("/a"), node.cleaned("/b")) == ({}, before)
    fill(handle, 40, 40)
    node.clean()
    assert node.cleaned("/b") == {("orders", 0): handle.segments()[-1].base_offset}
    assert latest_values(handle).keys() == {b"%d" % i for i in range(KEYS)}


def test_log_is_not_compacted_before_its_move_ends(node: Node) -> None:
    """Otherwise the part that the move has already copied would stay uncompacted, and deleted keys would reappear."""
    handle = node.log()
    fill(handle)
    node.manager.create_future(("orders", 0), "/b")
    assert node.manager.futures.copy(("orders", 0), 500) > 0
    node.clean()
    assert (node.cleaned("/a"), node.cleaned("/b")) == ({}, {})
    while node.manager.futures.copy(("orders", 0), 1 << 20):
        continue
    before = latest_values(handle)
    node.manager.replace_with_future(("orders", 0))
    node.clean()
    active = handle.segments()[-1].base_offset
    assert node.cleaned("/b") == {("orders", 0): active}
    assert latest_values(handle) == before
    assert len([offset for offset in latest_values(handle).values() if offset < active]) <= KEYS


def test_round_writes_no_checkpoint_when_a_move_began_meanwhile(node: Node) -> None:
    handle, key = node.log(), ("orders", 0)
    fill(handle)
    assert node.manager.compactions.begin(key, handle)
    node.manager.create_future(key, "/b")
    assert not node.manager.compactions.may_go_on(key, handle)
    node.manager.compactions.end(key, handle, 30, handle.truncations)
    assert node.manager.compactions.known_until(key) is None
    assert not node.manager.compactions.begin(key, handle)


def test_round_ends_when_the_cleanup_policy_changes(node: Node) -> None:
    handle = node.log()
    fill(handle)
    size = handle.size_bytes
    node.cleaner.configure(CleanerSettings(max_bytes_per_second=1.0))
    node.cleaner.check()
    wait_until(
        lambda: node.manager.compactions.may_go_on(("orders", 0), handle), what="a round that the rate limit holds back"
    )
    handle.configure(compacted(compact_policy=False, delete_policy=True))
    node.cleaner.configure(CleanerSettings())
    assert node.cleaner.settle(TIMEOUT_S)
    assert (node.cleaned(), handle.size_bytes) == ({}, size)


def test_gaps_of_a_compacted_log_are_no_damage_when_its_policy_has_changed(node: Node) -> None:
    """The node is killed before the cleaner's checkpoint covers the gaps, and then the cleanup policy changes."""
    handle = node.log()
    fill(handle)
    node.clean()
    before = latest_values(handle)
    node.disk.unlink(f"/a/{CLEANER_OFFSET}")
    node.disk.cut_power()
    node.disk.restart()
    again = Node(node.disk, compact_policy=False, delete_policy=True)
    assert latest_values(again.log()) == before
    again.close()


def test_checkpoint_entry_of_an_earlier_log_of_the_same_name_is_ignored(node: Node) -> None:
    OffsetCheckpoint("/a", CLEANER_OFFSET, node.disk).write({("orders", 0): 30})
    again = Node(node.disk)
    fill(again.log())
    assert again.manager.compactions.known_until(("orders", 0)) is None
    again.close()


def test_reader_continues_during_a_compaction(node: Node) -> None:
    handle = node.log()
    fill(handle)
    before = live_count()
    with half_done(handle) as compaction:
        while compaction.phase != "done":
            compaction.step(1000)
            offset = 0
            while offset < handle.end_offset:  # also reads at offsets of removed records
                found = handle.read(offset, 1)
                assert found.error == 0
                offset = max(offset, found.first_offset) + 1
    del found
    assert live_count() == before  # the files of the replaced segments are closed


# --- damage ---


def test_damaged_log_is_marked_uncleanable_and_the_others_are_compacted(node: Node) -> None:
    broken, sound = node.log("broken"), node.log("sound")
    fill(broken)
    fill(sound)
    base = broken.segments()[1].base_offset
    node.disk.write_part(f"/a/broken-0/{base:020}.log", 70, b"\xff")
    size = broken.size_bytes
    node.clean()
    node.clean()
    assert node.cleaned().keys() == {("sound", 0)}
    assert broken.size_bytes == size
    marked, dirty_bytes = node.cleaner.uncleanable()["/a"]
    assert marked == 1
    assert dirty_bytes > 0
    assert node.cleaner.uncleanable()["/b"] == (0, 0)
    node.manager.delete([("broken", 0)], Kind.DELETE)
    node.clean()
    assert node.cleaner.uncleanable()["/a"] == (0, 0)


def test_cleaner_tries_again_later_when_the_disk_is_full(node: Node) -> None:
    handle = node.log()
    for number in range(40):
        assert handle.append(batch(number, key=b"%d" % number)).error == 0
    assert handle.flush(10_000)
    used = sum(node.disk.size(f"/a/orders-0/{name}") for name in node.disk.list("/a/orders-0"))
    node.disk.limit(used)
    node.clean()
    node.disk.limit(None)
    assert node.cleaned() == {}
    assert not handle.directory.offline_errno
    node.clean()
    assert node.cleaned() == {}
    node.clock.advance_ms(node.cleaner.backoff_ms + 1)
    node.clean()
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}


@pytest.mark.parametrize("kind", ["read", "sync", "names"])
def test_directory_goes_offline_when_its_disk_fails_a_compaction(node: Node, kind: str) -> None:
    handle = node.log()
    fill(handle)
    node.disk.fail(kind, errno.EIO, after=6)
    node.clean()
    node.disk.fail(kind, 0)
    assert dict(node.manager.directories()) == {"/a": False, "/b": True}
    assert handle.state == "failed"
    assert node.cleaned() == {}
    node.clean()  # the cleaner ignores an offline log


def test_checkpoint_survives_a_restart_and_a_wrong_one_is_ignored(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.clean()
    before = node.cleaned()
    node.close()
    again = Node(node.disk)
    assert again.manager.compactions.known_until(("orders", 0)) == before["orders", 0]
    section = dirty_section(again.log(), 10_000, NOW)
    assert section is not None
    assert section.first_dirty == 0
    again.close()
    node.manager.loads.clear()


def test_records_without_a_key_are_removed(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    handle = node.log()
    builder = RecordBatchBuilder(base_offset=0, partition_leader_epoch=0)
    builder.append(NOW, None, b"v")
    assert handle.append_replicated(builder.build(), 9).error == 0
    fill(handle)
    node.clean()
    assert None not in keys_of(handle)
    assert "compaction removed 1 records without a key" in caplog.text


# --- limits ---


def test_cleaner_needs_more_rounds_when_its_map_is_small(node: Node) -> None:
    # The offset map has room for three keys.
    node.cleaner.configure(CleanerSettings(dedupe_buffer_bytes=0, load_factor=0.2))
    handle = node.log()
    handle.configure(compacted(min_cleanable_dirty_ratio=0.0))
    for number in range(40):
        assert handle.append(batch(number, key=b"%d" % (number % 20))).error == 0
    assert handle.flush(10_000)
    node.clean()
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}
    assert len(node.cleaner.last_rounds()) == 1
    assert max(keys_of(handle).count(key) for key in set(keys_of(handle))) <= 2


def test_cleaner_reports_a_batch_that_its_map_cannot_hold(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.cleaner.configure(CleanerSettings(dedupe_buffer_bytes=0, load_factor=0.2))
    handle = node.log()
    builder = RecordBatchBuilder()
    for number in range(4):
        builder.append(NOW, b"%d" % number, b"v")
    assert handle.append(builder.build()).error == 0
    fill(handle)
    node.clean()
    assert node.cleaner.uncleanable()["/a"][0] == 1
    assert "raise log.cleaner.dedupe.buffer.size" in caplog.text


def test_cleaner_keeps_its_rate_and_a_close_does_not_wait_for_it(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.cleaner.configure(CleanerSettings(max_bytes_per_second=1.0))
    node.cleaner.check()
    assert not node.cleaner.settle(0.2)
    node.cleaner.close()
    assert node.cleaner.settle(0)
    assert node.cleaned() == {}


def test_new_rate_applies_at_once(node: Node) -> None:
    handle = node.log()
    fill(handle)
    node.cleaner.configure(CleanerSettings(max_bytes_per_second=1.0))
    node.cleaner.check()
    node.cleaner.configure(CleanerSettings())
    assert node.cleaner.settle(TIMEOUT_S)  # at the first rate, this round would take an hour
    node.clean()
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}


def test_offset_map_behaves_like_a_dictionary_within_its_limit() -> None:
    keys = KeyOffsets(64 << 10, 0.9, b"s" * 16)
    keys.begin(1 << 40)
    known: dict[bytes, int] = {}
    for number in range(20_000):
        key = struct.pack(">i", number * 7919 % 4001)
        if keys.put(key, number):
            known[key] = number
        else:
            assert key not in known
            assert len(known) == keys.limit
    assert len(keys) == len(known) == keys.limit
    assert keys.memory_bytes <= 64 << 10
    assert all(keys.get(key) == offset for key, offset in known.items())
    assert keys.get(b"nobody") == -1
    keys.begin(10)
    assert keys.memory_bytes < 10_000
    assert keys.get(next(iter(known))) == -1


# --- record keys ---

SOUND = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


def test_cleaner_defaults_equal_the_defaults_of_the_keys() -> None:
    assert cleaner_settings(BrokerConfig(SOUND)) == CleanerSettings()


@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        ("log.cleaner.enable", "false", "enabled", False),
        ("log.cleaner.threads", "3", "threads", 3),
        ("log.cleaner.dedupe.buffer.size", "9000000", "dedupe_buffer_bytes", 9_000_000),
        ("log.cleaner.io.buffer.load.factor", "0.5", "load_factor", 0.5),
        ("log.cleaner.io.buffer.load.factor", "7", "load_factor", 1.0),
        ("log.cleaner.io.buffer.size", "1000", "io_buffer_bytes", 1000),
        ("log.cleaner.io.max.bytes.per.second", "5e6", "max_bytes_per_second", 5e6),
        ("log.cleaner.backoff.ms", "7", "backoff_ms", 7),
    ],
)
def test_key_changes_one_setting_of_the_cleaner(key: str, value: str, field: str, expected: object) -> None:
    settings = cleaner_settings(BrokerConfig(SOUND | {key: value}))
    assert settings == CleanerSettings()._replace(**{field: expected})


@pytest.mark.parametrize("key", ["log.cleaner.io.buffer.load.factor", "log.cleaner.io.max.bytes.per.second"])
@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_cleaner_compacts_when_a_key_has_no_finite_value(node: Node, key: str, value: str) -> None:
    handle = node.log()
    fill(handle)
    node.cleaner.configure(cleaner_settings(BrokerConfig(SOUND | {key: value})))
    node.cleaner.check()
    assert node.cleaner.settle(TIMEOUT_S)
    assert node.cleaned() == {("orders", 0): handle.segments()[-1].base_offset}


def test_tombstones_stay_for_delete_retention(node: Node) -> None:
    handle = node.log()
    for retention_ms, stays in ((1000, False), ((1 << 63) - 1, True)):
        handle.configure(compacted(delete_retention_ms=retention_ms, min_cleanable_dirty_ratio=0.0))
        key = b"gone %d" % stays
        for value in (b"v", None):
            assert handle.append(batch(0, key=key, value=value)).error == 0
        for passed_ms in (0, 2000):
            node.clock.advance_ms(passed_ms)
            fill(handle, 20)
            node.clean()
            assert [record[3] for one in read_log(handle) for record in one.records if record[2] == key] == (
                [None] if stays or passed_ms == 0 else []
            )
