"""No state machine and no event loop waits for a disk. The Raft core requests work that may block as an effect. Another
thread does the work and reports the result."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

import controllers
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchResponse, TopicRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.control import data_batch
from kafkacore.raft.core import Answer, RaftConfig, Send
from kafkacore.raft.delivery import LOAD_RECORDS
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.effects import Truncate
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch, RecentBatches
from kafkacore.raft.snapshots import snapshot_parts
from kafkacore.raft.voter_log import voters_of
from kafkacore.raft.voters import VoterHistory, VoterSet
from raft_replica import CLUSTER, OTHER, Replica, diverging, naming, snapshot_of, voters


class Unhurried(Replica):
    """A replica whose disk does no work until the test calls `work`."""

    asked: list[Any]

    def settle(self) -> None:
        state = self.raft.take_state()
        while state is not None:
            self.raft.persisted(state[0], self.now)
            state = self.raft.take_state()
        sync = self.raft.take_sync()
        if sync is not None:
            self.raft.durable(sync, self.now)
        self.asked = [*getattr(self, "asked", []), *self.raft.take_work()]

    def work(self) -> None:
        asked, self.asked = self.asked, []
        for each in asked:
            self.raft.done(each.number, each.effect.perform(self.log), self.now)
        self.settle()

    def answers(self) -> list[Any]:
        return [each.response for each in self.raft.take_outputs() if isinstance(each, Answer)]


def test_follower_answers_a_vote_after_a_truncation_and_its_log_is_untouched_before() -> None:
    replica = Unhurried(1, 2, 3)
    replica.follow(3, b"a", b"b", b"c")
    replica.raft.replica.become_follower(4, 3, ("n3", 9093))
    replica.settle()
    replica.answer(**diverging(2, 3))
    assert (replica.log.end_offset, replica.raft.take_sync()) == (3, None)
    replica.raft.request("vote", naming("Vote", 5), replica.now)
    replica.raft.tick(replica.now + 100_000)  # the disk is slow, and the follower's fetch timeout has expired
    replica.settle()
    assert replica.answers() == [] and replica.raft.epoch == 4
    replica.work()
    assert replica.log.end_offset == 2
    [vote] = replica.answers()
    assert messages.answered(vote)[0] == ErrorCode.NONE and replica.raft.epoch == 5


def leader_with_a_cold_log() -> Unhurried:
    replica = Unhurried(1, 2, 3)
    replica.lead()
    for _ in range(4):
        replica.raft.append([b"value"])
    replica.settle()
    replica.log.cold_below = replica.log.end_offset
    return replica


def ask(replica: Unhurried, offset: int, epoch: int) -> None:
    request = messages.fetch(CLUSTER, OTHER, replica.raft.epoch, OffsetAndEpoch(offset, epoch), -1)
    replica.raft.take_outputs()
    replica.raft.request("fetch", request, replica.now)
    replica.settle()


def test_leader_answers_a_fetch_of_old_records_after_its_disk_has_read_them() -> None:
    replica = leader_with_a_cold_log()
    ask(replica, 2, replica.raft.epoch)
    assert replica.answers() == []
    replica.work()
    [answer] = replica.answers()
    assert bytes(messages.answered(answer)[1].records) == replica.log.read(2, 1 << 20) != b""


def test_old_records_are_refused_when_the_leadership_ends_while_the_disk_reads() -> None:
    replica = leader_with_a_cold_log()
    ask(replica, 2, replica.raft.epoch)
    replica.raft.request("vote", naming("Vote", replica.raft.epoch + 1), replica.now)
    replica.settle()
    replica.raft.take_outputs()
    replica.work()
    [answer] = replica.answers()
    assert messages.answered(answer)[0] == ErrorCode.FENCED_LEADER_EPOCH


def test_old_records_that_a_trim_removes_while_the_disk_reads_are_offered_as_a_snapshot() -> None:
    replica = leader_with_a_cold_log()
    ask(replica, 2, replica.raft.epoch)
    made = OffsetAndEpoch(4, replica.raft.epoch)
    replica.log.write_snapshot(made, 0, b"snapshot")
    replica.log.finish_snapshot(made)
    replica.log.trim(4)
    replica.work()
    [answer] = replica.answers()
    partition = messages.answered(answer)[1]
    assert partition.snapshot_id == FetchResponse.SnapshotId(end_offset=4, epoch=made.epoch)
    assert bytes(partition.records) == b""


def test_snapshot_that_is_deleted_while_the_disk_reads_is_not_found() -> None:
    replica = leader_with_a_cold_log()
    made = OffsetAndEpoch(4, replica.raft.epoch)
    replica.log.write_snapshot(made, 0, b"snapshot")
    replica.log.finish_snapshot(made)
    replica.raft.request("part", messages.fetch_snapshot(CLUSTER, OTHER, made.epoch, made, 0), replica.now)
    replica.settle()
    del replica.log._snapshots[made]
    replica.work()
    [answer] = replica.answers()
    assert messages.answered(answer)[0] == ErrorCode.SNAPSHOT_NOT_FOUND


# --- batches in memory ---


def test_recent_batches_equal_the_batches_in_the_log() -> None:
    random = Random(5)
    for _ in range(200):
        log, recent, offset = MemoryLog(), RecentBatches(600), 0
        for _ in range(random.randrange(1, 30)):
            if random.random() < 0.2:
                offset = random.choice([batch[0] for batch in log._batches] or [0])
                log.truncate(offset)
                recent.truncate(offset)
            data = data_batch([b"v" * random.randrange(60)] * random.randrange(1, 4), offset, 1, 0)
            log.append(data)
            recent.append(offset, log.end_offset, data)
            offset = log.end_offset
        assert recent.read(offset - 1, 1) is not None
        for at in range(offset):
            found = recent.read(at, limit := random.randrange(1, 500))
            assert found is None or found == log.read(at, limit)


# --- snapshots during a start ---

AT = OffsetAndEpoch(50_000, 3)


class CountedLog(controllers.SyncedMemoryLog):
    """A metadata log that raises an error if the thread `barred` reads in a way that must wait for the disk. It also
    counts the snapshot bytes that were read."""

    barred: int | None = None
    snapshot_bytes = 0

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        data = super().read_snapshot(snapshot_id, position, max_bytes)
        self.snapshot_bytes += len(data)
        return data


def _on_another_thread(name: str) -> Any:
    def method(self: CountedLog, *arguments: Any) -> Any:
        assert threading.get_ident() != self.barred, f"the loop waits for the disk: {name}"
        return getattr(MemoryLog, name)(self, *arguments)

    return method


class StrictLog(CountedLog):
    def __init__(self) -> None:
        super().__init__()
        self.cold_below = 1 << 62  # reads at offsets below this must wait for the disk


for _name in ("read", "truncate", "trim", "snapshot_size", "read_snapshot", "write_snapshot", "finish_snapshot",
              "abandon_snapshot", "begin_at_snapshot"):  # fmt: skip
    setattr(StrictLog, _name, _on_another_thread(_name))


def with_snapshot(log: MemoryLog, records: int) -> None:
    """Makes the log begin at a snapshot. The snapshot has the voters 1, 2 and 3, and then `records` topics."""
    history = VoterHistory(VoterSet())
    history.set_version(0, 1)
    history.set_voters(0, voters(1, 2, 3))
    values = (
        b"\x01\x02\x00" + TopicRecord(name=f"t{n}", topic_id=Uuid((n + 1).to_bytes(16, "big"))).encode(0)
        for n in range(records)
    )
    log.write_snapshot(AT, 0, b"".join(snapshot_parts(AT, values, history, 1, 2)))
    log.finish_snapshot(AT)
    log.begin_at_snapshot(AT)


def test_voters_are_learned_from_the_head_of_a_snapshot() -> None:
    log = CountedLog()
    with_snapshot(log, 100_000)
    assert voters_of(log, VoterSet()).latest == voters(1, 2, 3)
    assert log.snapshot_bytes <= 1 << 20 < log.snapshot_size(AT) // 2


class Counting:
    """A Raft listener that counts the records that it receives in each iteration of the event loop."""

    def __init__(self) -> None:
        self.turns: dict[int, int] = {}
        self.turn = 0
        self.finished = False

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> Counting:
        assert (offset, epoch) == (AT.offset - 1, AT.epoch)
        return self

    def take(self, records: Any) -> None:
        self.turns[self.turn] = self.turns.get(self.turn, 0) + len(records)

    def finish(self) -> None:
        self.finished = True

    def on_batch(self, batch: Any) -> None: ...
    def on_leading(self, epoch: int) -> None: ...
    def on_following(self, epoch: int) -> None: ...


def driver_of(log: Any, executor: Any, *node_ids: int) -> RaftDriver:
    return RaftDriver(
        RaftConfig(1, Uuid(b"d" * 16), CLUSTER, voters=voters(*node_ids)), log, None,
        decode=list, persist=lambda state, version: None, network=None, executor=executor,
        random=Random(1), now_ms=lambda: 0, wall_ms=lambda: 0, on_fault=lambda error: pytest.fail(repr(error)),
    )  # fmt: skip


def test_loop_does_other_work_between_the_parts_of_a_snapshot() -> None:
    log = StrictLog()
    with_snapshot(log, 20_500)
    counting = Counting()

    async def story() -> None:
        log.barred = threading.get_ident()
        with ThreadPoolExecutor(2) as pool:
            driver = driver_of(log, pool, 1, 2)
            driver.add_listener(counting)

            async def count_turns() -> None:
                while not counting.finished:
                    counting.turn += 1
                    await asyncio.sleep(0)

            await asyncio.gather(driver.start(), count_turns())
            log.barred = None
            await driver.stop()

    asyncio.run(story())
    assert sum(counting.turns.values()) == 20_500
    assert max(counting.turns.values()) <= LOAD_RECORDS


def test_no_loop_waits_for_a_disk_when_a_controller_makes_keeps_and_deletes_snapshots() -> None:
    async def story() -> None:
        log = StrictLog()
        log.barred = threading.get_ident()
        log.size_bytes = 1 << 40
        log.delete_snapshot = log._snapshots.pop
        harness = controllers.Harness(log=log)
        with ThreadPoolExecutor(2) as pool:
            harness.executor = pool
            await harness.start()
            for broker_id in (1, 2):
                await harness.brokers(broker_id)
                contents = harness.controller.snapshot()
                made = OffsetAndEpoch(contents.offset + 1, contents.epoch)
                await harness.driver.write_snapshot(made, contents.values, contents.timestamp_ms)
            first, second = log.snapshots()

            def clean() -> None:
                log.trim(second.offset)
                log.delete_snapshot(first)

            await harness.driver.change_log(clean)
            assert (log.snapshots(), log.start_offset) == ([second], second.offset)
            request = messages.fetch_snapshot(controllers.CLUSTER, OTHER, second.epoch, second, 0)
            answered = messages.answered(await harness.driver.request(request))
            assert answered[0] == 0 and len(answered[1].unaligned_records) == answered[1].size
            log.barred = None
            await harness.driver.stop()

    asyncio.run(story())


def test_follower_fetches_the_next_part_after_its_disk_has_written_the_last() -> None:
    replica = Unhurried(1, 2, 3)
    replica.follow(3)
    whole = snapshot_of(OffsetAndEpoch(9, 2), *[b"v"] * 9)
    offered = FetchResponse.SnapshotId(end_offset=9, epoch=2)
    replica.answer(records=b"", snapshot_id=offered)
    named = messages.classes.FetchSnapshotResponse.SnapshotId(end_offset=9, epoch=2)
    replica.answer(snapshot_id=named, size=len(whole), position=0, unaligned_records=whole[:50])
    assert [each for each in replica.raft.take_outputs() if isinstance(each, Send)] == []
    replica.work()
    send = replica.next_send()
    assert send.request.topics[0].partitions[0].position == 50


class SlowToTruncate(controllers.SyncedMemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.may_end = threading.Event()

    def truncate(self, end_offset: int) -> None:
        assert self.may_end.wait(20)
        super().truncate(end_offset)
        self.events.append("truncated")

    def read_recent(self, offset: int, max_bytes: int) -> bytes | None:
        self.events.append("read")
        return super().read_recent(offset, max_bytes)


class Delivered(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.batch = asyncio.Event()

    def on_batch(self, batch: Any) -> None:
        self.batch.set()


def test_committed_batches_are_read_after_a_truncation_and_not_while_it_changes_the_batches_in_memory() -> None:
    async def story() -> None:
        log, delivered = SlowToTruncate(), Delivered()
        for offset in range(3):
            log.append(data_batch([b"value"], offset, 3, 0))
        with ThreadPoolExecutor(2) as pool:
            driver = driver_of(log, pool, 1, 2, 3)
            driver.add_listener(delivered)
            await driver.start()
            replica = driver.raft.replica
            replica.become_follower(4, 2, ("n2", 9093))
            replica.effects.change(Truncate(2), lambda _: replica.truncated())
            replica.high_watermark = 1
            for _ in range(3):
                driver._pump()
                await asyncio.sleep(0)
            log.may_end.set()
            async with asyncio.timeout(20):
                await delivered.batch.wait()
            assert log.events[:2] == ["truncated", "read"] and log.end_offset == 2
            await driver.stop()

    asyncio.run(story())
