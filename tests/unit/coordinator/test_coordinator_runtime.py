"""The runtime of a coordinator, tested with a simple shard (state machine) that stores a word for each key: loading,
batches, failures, epochs and time."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.log.partition_handle import AppendResult, PartitionHandle
from kafkacore._fast.log.partition_watch import ACKS
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.coordinator import journal, loader, runtime
from kafkacore.coordinator.group.effects import Append, Effects
from kafkacore.coordinator.journal import JournalSettings
from kafkacore.coordinator.runtime import CoordinatorRuntime, RuntimePorts, RuntimeSettings, State
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.server.partition_waits import PartitionWaits
from transactions import COMMIT, marker

NOW_MS = 1_700_000_000_000
PATIENCE_S = 10


class Words:
    """A shard that answers `put` with the offset of the committed word, or with the error."""

    def __init__(self) -> None:
        self.words: dict[bytes, bytes | None] = {}
        self.offsets: dict[bytes, int] = {}
        self.ends: list[tuple[int, bool]] = []
        self.open: dict[int, tuple[asyncio.Future[Any], bytes, bytes | None]] = {}
        self.next_token = 1
        self.loaded_ms = 0
        self.ticks: list[int] = []
        self.deadline_ms: int | None = None
        self.answered_late: list[int] = []

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int = -1) -> None:
        if value == b"unreadable":
            raise ProtocolError("what is this?")
        self.words[key] = value
        self.offsets[key] = offset

    def replay_end_of_transaction(self, producer_id: int, committed: bool, offset: int) -> None:
        self.ends.append((producer_id, committed))

    def loaded(self, now_ms: int) -> Effects:
        self.loaded_ms = now_ms
        return Effects()

    def put(self, key: bytes, value: bytes | None, waiter: asyncio.Future[Any], independent: bool = False) -> Effects:
        effects = Effects()
        effects.appends.append(Append(self.next_token, [(key, value)], independent))
        self.open[self.next_token] = waiter, key, value
        self.next_token += 1
        return effects

    def _answer(self, token: int, response: Any, *, close: bool = True) -> Effects:
        effects = Effects()
        waiter, key, value = self.open.pop(token) if close else self.open[token]
        effects.answers.append((waiter, response))  # type: ignore[arg-type]
        if isinstance(response, int) and response >= 0:
            self.words[key] = value
        return effects

    def committed(self, token: int, base_offset: int, now_ms: int) -> Effects:
        return self._answer(token, base_offset)

    def failed(self, token: int, error: int, now_ms: int) -> Effects:
        return self._answer(token, ErrorCode(error).name)

    def timed_out(self, token: int, now_ms: int) -> Effects:
        self.answered_late.append(token)
        return self._answer(token, "late", close=False)

    def unload(self, error: int) -> Effects:
        effects = Effects()
        effects.answers += [(waiter, ErrorCode(error).name) for waiter, _, _ in self.open.values()]  # type: ignore[misc]
        return effects

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def tick(self, now_ms: int) -> Effects:
        self.ticks.append(now_ms)
        self.deadline_ms = None
        return Effects()


class Held:
    """A partition whose appends can be made to wait for a segment roll until the test opens the gate. With `error`, its
    appends fail."""

    def __init__(self, handle: PartitionHandle, gate: asyncio.Event) -> None:
        self.handle = handle
        self.gate = gate
        self.error = ErrorCode.NONE
        self.rolls = 0  # the number of appends that still have to wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def append_now(self, records: bytearray, acks: int) -> AppendResult | None:
        self.rolls -= 1
        if not self.gate.is_set() or self.rolls >= 0:
            return None
        return self._failed() if self.error != ErrorCode.NONE else self.handle.append_now(records, acks)

    def append(self, records: bytearray, acks: int, wait: bool, origin: str) -> AppendResult:
        if self.error != ErrorCode.NONE:
            return self._failed()
        return self.handle.append(records, acks, wait, origin)

    def _failed(self) -> AppendResult:
        return AppendResult(int(self.error), -1, -1, -1, 0, False, None, [], None)


class World:
    def __init__(
        self, path: Path, *, linger_ms: int = -1, timeout_ms: int = 5000, max_batch_bytes: int = 1_000_000
    ) -> None:
        self.clock = ManualClock(NOW_MS)
        self.environment = Environment(self.clock)
        self.directory = LogDirectory(self.environment, str(path))
        self.logs: dict[int, Held] = {}
        real = Environment()
        self.waits = PartitionWaits(real, Scheduler(real, asyncio.get_running_loop().call_later))
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = 0  # how many jobs the runtime has handed to another thread
        self.scheduler = Scheduler(self.environment)
        self.made: list[Words] = []
        self.runtime: CoordinatorRuntime[Words] = CoordinatorRuntime(
            self._make,
            RuntimeSettings("words", JournalSettings(linger_ms, timeout_ms), 4096),
            RuntimePorts(
                self.environment, self.scheduler, self._run_blocking, self._wait, lambda: max_batch_bytes,
            ),
        )  # fmt: skip

    def _make(self) -> Words:
        self.made.append(Words())
        return self.made[-1]

    async def _run_blocking(self, work: Callable[[], Any]) -> Any:
        self.begun += 1
        await self.gate.wait()
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _wait(self, log: Held, condition: Any, limit_s: float) -> bool:
        return await self.waits.any([(log.handle, *condition)], limit_s * 1000)

    def log(self, index: int = 0, **settings: int) -> Held:
        if index not in self.logs:
            handle = PartitionHandle(self.directory, "words", index, Uuid.random(), LogSettings(**settings))
            handle.become_leader(1, 0)
            self.logs[index] = Held(handle, self.gate)
        return self.logs[index]

    async def led(self, index: int = 0, epoch: int = 0) -> Words:
        self.runtime.lead(index, epoch, self.log(index))
        return await self.active(index)

    async def active(self, index: int = 0) -> Words:
        await until(lambda: not self.runtime.loading)
        return self.runtime.shard(index)

    def put(
        self, key: bytes, value: bytes | None = b"x", index: int = 0, independent: bool = False
    ) -> asyncio.Future[Any]:
        return self.runtime.ask(index, lambda shard, waiter, now_ms: shard.put(key, value, waiter, independent))

    def stored(self, index: int = 0) -> list[list[tuple[bytes | None, bytes | None]]]:
        data = self.log(index).handle.read(0, 1 << 20).records
        return [[(record.key, record.value) for record in batch] for batch in Batches(data)]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    """Returns a function that runs a test in a new world."""

    def run(story: Callable[[World], Awaitable[None]], **settings: int) -> None:
        async def whole() -> None:
            world = World(tmp_path, **settings)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await story(world)
            finally:
                await world.runtime.close()
                world.waits.close()

        asyncio.run(whole())

    return run


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not reached():  # noqa: ASYNC110 - the condition has no event to wait for
            await asyncio.sleep(0.001)


async def turns() -> None:
    """Lets the event loop run everything that is due now."""
    for _ in range(50):
        await asyncio.sleep(0)


def batch(*records: tuple[bytes | None, bytes | None], **fields: Any) -> bytes:
    builder = RecordBatchBuilder(**fields)
    for key, value in records:
        builder.append(NOW_MS, key, value)
    return builder.build()


def flip_a_byte(path: Path) -> None:
    with next(path.rglob("words-0/*.log")).open("r+b") as damaged:
        damaged.seek(-20, 2)
        damaged.write(b"\xff")


def test_write_is_answered_when_it_is_committed_in_the_log(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        assert await world.put(b"a", b"1") == 0
        assert await world.put(b"a", None) == 1
        assert world.stored() == [[(b"a", b"1")], [(b"a", None)]]

    play(story)


def test_first_write_of_a_turn_is_appended_at_once_and_later_ones_share_a_batch(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        await world.put(b"opens the log")
        puts = [world.put(b"%d" % n) for n in range(4)]
        assert [put.done() for put in puts] == [True, False, False, False]
        assert await asyncio.gather(*puts) == [1, 2, 3, 4]
        assert [len(each) for each in world.stored()] == [1, 1, 3]

    play(story)


def test_writes_during_an_append_share_a_batch(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        world.gate.clear()
        begun = world.begun
        first = [world.put(b"%d" % n) for n in range(3)]
        await until(lambda: world.begun > begun)
        later = [world.put(b"%d" % n) for n in range(3, 8)]
        world.gate.set()
        assert await asyncio.gather(*first, *later) == list(range(8))
        assert [len(each) for each in world.stored()] == [1, 7]
        assert world.runtime.states()[State.ACTIVE] == 1

    play(story)


def test_effects_of_a_commit_follow_the_reports_of_its_batch(play: Any) -> None:
    async def story(world: World) -> None:
        shard = await world.led()
        world.log().rolls = 2  # the next two appends must wait, so another thread makes them
        puts = [world.put(b"%d" % n) for n in range(4)]
        answered: list[int] = []
        more: list[asyncio.Future[Any]] = []
        committed = shard.committed

        def follow(token: int, base_offset: int, now_ms: int) -> Effects:
            answered.append(token)
            effects = committed(token, base_offset, now_ms)
            if token < 5:
                more.append(asyncio.get_running_loop().create_future())
                effects.appends += shard.put(b"more", b"x", more[-1]).appends
            return effects

        shard.committed = follow  # type: ignore[method-assign]
        await asyncio.gather(*puts)
        await until(lambda: len(answered) == 8)
        assert answered == list(range(1, 9))

    play(story)


def test_batch_lingers_for_more(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        first = world.put(b"a")
        for _ in range(3):
            await asyncio.sleep(0)
        second = world.put(b"b")
        assert await asyncio.gather(first, second) == [0, 1]
        assert len(world.stored()) == 1

    play(story, linger_ms=30)


def test_write_too_large_for_a_batch_fails_and_its_companions_are_repeated(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        puts = [world.put(b"a"), world.put(b"b", b"v" * 1000), world.put(b"c")]
        assert await asyncio.gather(*puts) == [0, "MESSAGE_TOO_LARGE", "COORDINATOR_LOAD_IN_PROGRESS"]
        assert await world.put(b"c") == 1

    play(story, max_batch_bytes=500)


def test_independent_write_too_large_for_a_batch_fails_alone(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        puts = [world.put(b"a"), world.put(b"b", b"v" * 1000, independent=True), world.put(b"c")]
        assert await asyncio.gather(*puts) == [0, "MESSAGE_TOO_LARGE", 1]
        assert [each for batch in world.stored() for each in batch] == [(b"a", b"x"), (b"c", b"x")]

    play(story, max_batch_bytes=500)


def test_lone_failure_is_reported_after_earlier_writes_that_wait_for_replicas(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        await world.put(b"opens the log")
        replicated = asyncio.Event()

        async def replicate(watches: Any, limit_ms: float) -> bool:
            return await replicated.wait()

        world.waits.any = replicate  # type: ignore[method-assign]
        log = world.log()
        appended = log.handle.append_now
        log.append_now = lambda records, acks: appended(records, acks)._replace(ack=(ACKS, 1, 0))
        log.acknowledged = lambda kind, at, generation: 0 if replicated.is_set() else None
        puts = [world.put(b"a"), world.put(b"b", b"v" * 1000, independent=True), world.put(b"c")]
        await until(lambda: len(world.stored()) == 3)
        assert not any(put.done() for put in puts)
        replicated.set()
        assert await asyncio.gather(*puts) == [1, "MESSAGE_TOO_LARGE", 2]

    play(story, max_batch_bytes=500)


def test_batch_stays_below_the_topics_limit(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        world.gate.clear()
        puts = [world.put(b"%d" % n, b"v" * 100) for n in range(10)]
        world.gate.set()
        assert await asyncio.gather(*puts) == list(range(10))
        assert [len(each) for each in world.stored()] == [1, 3, 3, 3]

    play(story, max_batch_bytes=500)


def test_failed_write_fails_those_behind_it_and_the_next_one_succeeds(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        world.gate.clear()
        begun = world.begun
        first = world.put(b"a")
        await until(lambda: world.begun > begun)
        second = world.put(b"b")
        world.log().error = ErrorCode.NOT_ENOUGH_REPLICAS
        world.gate.set()
        assert await asyncio.gather(first, second) == ["NOT_ENOUGH_REPLICAS"] * 2
        world.log().error = ErrorCode.NONE
        assert await world.put(b"c") == 0
        assert world.runtime.shard(0).words == {b"c": b"x"}

    play(story)


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_lost_partition_is_unloaded(play: Any, error: ErrorCode) -> None:
    async def story(world: World) -> None:
        await world.led()
        await world.led(1)
        world.log().error = error
        assert await world.put(b"a") == error.name
        with pytest.raises(KafkaError) as refused:
            world.put(b"b")
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert await world.put(b"b", index=1) == 0

    play(story)


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_shard_is_loaded_again_when_an_append_failed_and_the_leadership_goes_on(play: Any, error: ErrorCode) -> None:
    async def story(world: World) -> None:
        await world.led()
        assert await world.put(b"a", b"1") == 0
        world.log().error = error  # for example, no file descriptor was free for the next segment
        assert await world.put(b"b") == error.name
        world.log().error = ErrorCode.NONE
        world.clock.advance_ms(1_000)
        world.scheduler.run_due()
        shard = await world.active()
        assert shard.words == {b"a": b"1"}
        assert await world.put(b"b") == 1

    play(story)


def test_shard_is_loaded_again_when_a_read_failed_and_the_leadership_goes_on(play: Any) -> None:
    async def story(world: World) -> None:
        world.log().handle.append(batch((b"a", b"1")))
        reads: list[int] = []

        def read(*asked: Any) -> Any:
            reads.append(world.environment.wall_ms() - NOW_MS)
            found = world.log().handle.read(*asked)
            return found._replace(error=int(ErrorCode.KAFKA_STORAGE_ERROR)) if len(reads) <= 3 else found

        world.log().read = read  # type: ignore[attr-defined]
        world.runtime.lead(0, 0, world.log())
        for _ in range(10):
            await until(lambda: not world.runtime.loading)
            world.clock.advance_ms(1_000)
            world.scheduler.run_due()
        assert (await world.active()).words == {b"a": b"1"}
        assert reads == [0, 1_000, 3_000, 7_000]

    play(story)


@pytest.mark.parametrize("lack", [MemoryError(), RuntimeError("can't start new thread")])
def test_shard_is_loaded_again_when_its_load_lacked_memory_or_a_thread(play: Any, lack: Exception) -> None:
    async def story(world: World) -> None:
        world.log().handle.append(batch((b"a", b"1")))
        lacks = [lack]

        def read(*asked: Any) -> Any:
            if lacks:
                raise lacks.pop()
            return world.log().handle.read(*asked)

        world.log().read = read  # type: ignore[attr-defined]
        world.runtime.lead(0, 0, world.log())
        await until(lambda: not world.runtime.loading)
        assert world.runtime.states()[State.FAILED] == 1
        world.clock.advance_ms(1_000)
        world.scheduler.run_due()
        assert (await world.active()).words == {b"a": b"1"}

    play(story)


@pytest.mark.parametrize("error", [CorruptBatchError("x"), InvalidRecordError("x"), CodecError(-1, "x")])
def test_shard_is_not_loaded_again_when_its_log_is_unreadable(play: Any, error: Exception) -> None:
    async def story(world: World) -> None:
        world.log().handle.append(batch((b"a", b"1")))
        reads: list[int] = []

        def read(*asked: Any) -> Any:
            reads.append(1)
            raise error

        world.log().read = read  # type: ignore[attr-defined]
        world.runtime.lead(0, 0, world.log())
        await until(lambda: not world.runtime.loading)
        world.clock.advance_ms(60_000)
        world.scheduler.run_due()
        assert world.runtime.states()[State.FAILED] == 1
        assert reads == [1]

    play(story)


def test_shard_is_loaded_again_when_it_fails_to_apply_a_committed_write(play: Any) -> None:
    async def story(world: World) -> None:
        shard = await world.led()
        assert await world.put(b"a", b"1") == 0

        def committed(*_: Any) -> Effects:
            raise MemoryError

        shard.committed = committed  # type: ignore[method-assign]
        assert await world.put(b"b", b"2") == "NOT_COORDINATOR"
        world.clock.advance_ms(1_000)
        world.scheduler.run_due()
        assert (await world.active()).words == {b"a": b"1", b"b": b"2"}
        assert await world.put(b"c", b"3") == 2

    play(story)


def test_shard_is_not_loaded_again_when_the_leadership_has_ended(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        world.log().error = ErrorCode.KAFKA_STORAGE_ERROR
        await world.put(b"a")
        world.runtime.resign(0)
        world.clock.advance_ms(1_000)
        world.scheduler.run_due()
        assert world.runtime.states() == dict.fromkeys(State, 0)
        assert len(world.made) == 1

    play(story)


def test_waiter_must_repeat_when_an_append_ends_without_a_result(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        await world.put(b"before")

        def append(*_: Any) -> AppendResult:
            raise MemoryError

        world.log().rolls, world.log().append = 1, append  # type: ignore[method-assign]
        puts = [world.put(b"a"), world.put(b"b")]
        assert await asyncio.gather(*puts) == ["REQUEST_TIMED_OUT"] * 2
        assert await world.put(b"c") == 1

    play(story)


def test_late_waiter_gets_an_error_and_the_append_may_still_commit(play: Any) -> None:
    async def story(world: World) -> None:
        shard = await world.led()
        world.gate.clear()
        put = world.put(b"a")
        assert await put == "late"
        world.gate.set()
        await until(lambda: bool(shard.words))
        assert shard.answered_late == [1]

    play(story, timeout_ms=20)


def test_requests_are_refused_until_the_whole_log_is_loaded(play: Any) -> None:
    async def story(world: World) -> None:
        handle = world.log().handle
        for n in range(300):
            handle.append(batch((b"%d" % (n % 7), b"%d" % n), codec="lz4"))
        world.runtime.lead(0, 0, world.log())
        with pytest.raises(KafkaError) as refused:
            world.put(b"a")
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard = await world.active()
        assert shard.words == {b"%d" % (n % 7): b"%d" % n for n in range(293, 300)}
        assert shard.offsets[b"5"] == 299
        assert shard.loaded_ms == NOW_MS
        assert (world.runtime.metrics.loads, world.runtime.states()[State.ACTIVE]) == (1, 1)

    play(story)


def test_control_batches_end_transactions_and_unreadable_records_are_skipped(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        handle = world.log().handle
        handle.become_follower(2, 1)
        transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        handle.append_replicated(batch((b"a", b"1"), partition_leader_epoch=0, **transactional), 1)
        handle.append_replicated(marker(1, 7, COMMIT), 1)
        handle.become_leader(1, 2)
        handle.append(batch((b"b", b"unreadable"), (None, b"no key"), (b"c", b"2")))
        shard = await world.led(epoch=2)
        assert shard.words == {b"a": b"1", b"c": b"2"}
        assert shard.ends == [(7, True)]

    play(story)
    assert "offset 2 cannot be read and is skipped: what is this?" in caplog.text
    assert "offset 3 cannot be read and is skipped: it has no key" in caplog.text


def test_corrupt_log_fails_its_own_groups_alone(play: Any, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        handle = world.log().handle
        handle.append(batch((b"a", b"1" * 100)))
        handle.flush()
        flip_a_byte(tmp_path)
        world.runtime.lead(0, 0, world.log())
        world.runtime.lead(1, 0, world.log(1))
        await until(lambda: not world.runtime.loading)
        with pytest.raises(KafkaError) as refused:
            world.runtime.shard(0)
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert await world.put(b"b", index=1) == 0
        assert world.runtime.states() == {State.LOADING: 0, State.ACTIVE: 1, State.FAILED: 1}

    play(story)


def test_load_fails_when_the_directory_fails_before_the_replayed_records_are_committed(play: Any) -> None:
    async def story(world: World) -> None:
        handle = world.log().handle
        handle.become_leader(1, 1, 1, [(2, True)])
        handle.append(batch((b"a", b"1")))
        world.runtime.lead(0, 1, world.log())
        await until(lambda: world.waits.count)
        handle.fail(errno.EIO)
        await until(lambda: not world.runtime.loading)
        assert world.runtime.states()[State.FAILED] == 1
        with pytest.raises(KafkaError) as refused:
            world.put(b"b")
        assert refused.value.code == ErrorCode.NOT_COORDINATOR

    play(story)


def test_load_replays_a_marker_that_is_appended_before_the_replayed_records_are_committed(play: Any) -> None:
    async def story(world: World) -> None:
        handle = world.log().handle
        handle.become_leader(1, 1, 1, [(2, True)])
        transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        handle.append(batch((b"a", b"1"), **transactional), -1, False, "coordinator")
        world.runtime.lead(0, 1, world.log())
        await until(lambda: world.waits.count)
        # The append of the marker began in an earlier leadership of this broker.
        handle.append(marker(0, 7, COMMIT), -1, False, "coordinator")
        handle.become_leader(1, 1, 2, [])
        assert (await world.active()).ends == [(7, True)]

    play(story)


def test_waiters_get_an_error_when_the_leadership_goes_and_a_later_epoch_loads_again(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        assert await world.put(b"a", b"1") == 0
        world.gate.clear()
        begun = world.begun
        put = world.put(b"b", b"2")
        await until(lambda: world.begun > begun)
        world.runtime.resign(0)
        assert await put == "NOT_COORDINATOR"
        world.log().handle.become_leader(1, 4)
        world.runtime.lead(0, 4, world.log())
        world.gate.set()
        # The append that was in flight is in the log, and the new shard has loaded it.
        shard = await world.active()
        assert shard.words == {b"a": b"1", b"b": b"2"}
        assert len(world.made) == 2
        world.runtime.lead(0, 4, world.log())
        assert world.runtime.shard(0) is shard

    play(story)


def test_returning_leadership_loads_appends_that_were_under_way(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        world.gate.clear()
        begun = world.begun
        put = world.put(b"b", b"2")
        await until(lambda: world.begun > begun)
        world.runtime.resign(0)
        assert await put == "NOT_COORDINATOR"
        await turns()
        begun = world.begun
        world.runtime.lead(0, 0, world.log())
        await turns()
        assert world.runtime.loading
        assert world.begun == begun  # the runtime has not begun to load
        world.gate.set()
        assert (await world.active()).words == {b"b": b"2"}

    play(story)


def test_shard_goes_on_when_the_same_leadership_has_a_newer_epoch(play: Any) -> None:
    async def story(world: World) -> None:
        shard = await world.led()
        assert await world.put(b"a", b"1") == 0
        world.log().handle.become_leader(1, 3)
        world.runtime.lead(0, 3, world.log())
        assert world.runtime.shard(0) is shard
        assert await world.put(b"b", b"2") == 1
        assert world.made == [shard]

    play(story)


def test_shard_loads_anew_when_another_broker_led_meanwhile(play: Any) -> None:
    async def story(world: World) -> None:
        former = await world.led()
        assert await world.put(b"a", b"1") == 0
        handle = world.log().handle
        # The role changes twice before the coordinator learns about it. Meanwhile another leader has replaced the
        # record.
        handle.become_follower(2, 1)
        assert handle.truncate_as_follower(0, 1) == 0
        handle.append_as_follower(batch((b"a", b"other"), partition_leader_epoch=1), 1)
        handle.become_leader(1, 2)
        world.runtime.lead(0, 2, world.log())
        shard = await world.active()
        assert shard is not former
        assert shard.words == {b"a": b"other"}

    play(story)


def test_stop_answers_every_waiter(play: Any) -> None:
    async def story(world: World) -> None:
        await world.led()
        world.gate.clear()
        begun = world.begun
        put = world.put(b"a")
        await until(lambda: world.begun > begun)
        world.gate.set()
        await world.runtime.close()
        assert put.result() == "COORDINATOR_NOT_AVAILABLE"

    play(story)


def test_many_answers_are_given_in_turns_of_the_loop(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        monkeypatch.setattr(runtime, "ANSWERS_IN_A_TURN", 2)
        await world.led()
        waiters: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in range(4)]

        def answer_all(shard: Words, waiter: asyncio.Future[Any], now_ms: int) -> Effects:
            effects = Effects()
            effects.answers += [(each, number) for number, each in enumerate((*waiters, waiter))]  # type: ignore[misc]
            return effects

        waiters[1].cancel()  # the runtime skips a waiter that was cancelled
        waiters.append(world.runtime.ask(0, answer_all))
        seen = []
        while not seen or seen[-1] < 5:
            seen.append(sum(each.done() for each in waiters))
            await asyncio.sleep(0)
        assert seen == [2, 4, 5]
        assert [each.result() for each in waiters if not each.cancelled()] == [0, 2, 3, 4]

    play(story)


def test_requests_are_refused_while_the_journal_is_full(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        monkeypatch.setattr(journal, "MAX_WAITING", 1)
        await world.led()
        world.gate.clear()
        put, waiting = world.put(b"a"), world.put(b"b")
        with pytest.raises(KafkaError) as refused:
            world.put(b"c")
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.gate.set()
        assert await asyncio.gather(put, waiting) == [0, 1]
        assert await world.put(b"c") == 2

    play(story)


def test_shard_ticks_at_its_deadline_and_not_before(play: Any) -> None:
    async def story(world: World) -> None:
        shard = await world.led()
        shard.deadline_ms = NOW_MS + 5000
        await world.put(b"a")
        world.clock.advance_ms(4999)
        assert world.scheduler.run_due() == 0
        world.clock.advance_ms(1)
        assert world.scheduler.run_due() == 1
        assert shard.ticks == [NOW_MS + 5000]
        assert world.scheduler.next_due_ns() is None

    play(story)


def test_loading_yields_to_the_loop(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        monkeypatch.setattr(loader, "SLICE_RECORDS", 10)
        world.log().handle.append(batch(*((b"%d" % n, b"v") for n in range(1000))))
        world.runtime.lead(0, 0, world.log())
        turns = 0
        while world.runtime.loading:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 100

    play(story)


def test_shard_whose_tick_fails_ticks_at_its_next_deadline(play: Any) -> None:
    async def story(world: World) -> None:
        shard = await world.led()
        shard.deadline_ms = NOW_MS + 1000
        await world.put(b"a")
        tick = shard.tick

        def fails_once(now_ms: int) -> Effects:
            shard.tick = tick  # type: ignore[method-assign]
            shard.deadline_ms = NOW_MS + 2000
            raise ValueError("one group of many")

        shard.tick = fails_once  # type: ignore[method-assign]
        world.clock.advance_ms(1000)
        world.scheduler.run_due()
        world.clock.advance_ms(1000)
        world.scheduler.run_due()
        assert shard.ticks == [NOW_MS + 2000]

    play(story)


class _Stepped:
    """The clock of a test world. The test sets its wall time."""

    def __init__(self, world: World) -> None:
        self._clock = world.environment
        self.step_ms = 0

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.step_ms


def test_runtime_and_shards_share_a_time_when_the_wall_clock_is_set(play: Any) -> None:
    async def story(world: World) -> None:
        clock = _Stepped(world)
        settings, ports = world.runtime._settings, world.runtime._ports
        runtime = CoordinatorRuntime(world._make, settings, ports._replace(clock=clock))
        runtime.lead(0, 0, world.log())
        await until(lambda: not runtime.loading)
        for step_ms in (3_600_000, -3_600_000):
            clock.step_ms = step_ms
            told: list[int] = []
            runtime.tell(lambda shard, now_ms, told=told: told.append(now_ms) or Effects())  # type: ignore[misc]
            assert told == [runtime.now_ms()] == [NOW_MS]
        await runtime.close()

    play(story)


class _SlowAppend:
    """Delays the next append to a partition until the test sets `go`."""

    def __init__(self, log: Held) -> None:
        self.go = threading.Event()
        self.done = False
        self._append = log.append
        log.rolls = 1
        log.append = self  # type: ignore[method-assign, assignment]

    def __call__(self, *args: Any) -> AppendResult:
        self.go.wait(PATIENCE_S)
        result = self._append(*args)
        self.done = True
        return result


async def _lead_twice_while_an_append_is_slow(world: World) -> _SlowAppend:
    await world.led()
    slow = _SlowAppend(world.log())
    begun = world.begun
    put = world.put(b"b", b"2")
    await until(lambda: world.begun > begun)
    for _ in range(2):  # the second leadership of the partition has nothing to append, and ends at once
        world.runtime.resign(0)
        world.runtime.lead(0, 0, world.log())
        await turns()
    assert world.begun == begun + 1  # the runtime has not begun to load
    assert await put == "NOT_COORDINATOR"
    return slow


def test_third_seat_loads_appends_of_the_first(play: Any) -> None:
    async def story(world: World) -> None:
        slow = await _lead_twice_while_an_append_is_slow(world)
        try:
            assert world.runtime.loading
        finally:
            slow.go.set()
        assert (await world.active()).words == {b"b": b"2"}

    play(story)


def test_stop_waits_for_the_append_of_an_earlier_seat(play: Any) -> None:
    async def story(world: World) -> None:
        slow = await _lead_twice_while_an_append_is_slow(world)
        asyncio.get_running_loop().call_later(0.05, slow.go.set)
        await world.runtime.close()
        assert slow.done

    play(story)
