"""A fetcher on a native processor: its connection, which answers it accepts from a leader, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from followed_leader import LEADER, batch, values
from kafkacore._fast.follow import driver_handle, followed
from kafkacore._fast.log import partition
from kafkacore._fast.log.replication_quota import BY_FOLLOWER, NO_BOUND, ReplicationQuota
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.replication.fetchers import Follow
from served_leader import ServedLeader, driven, until


@pytest.fixture(autouse=True)
def everything_is_given_back() -> Iterator[None]:
    gc.collect()
    before = driver_handle.live(), followed.live_count(), partition.live_count()
    yield
    gc.collect()
    assert (driver_handle.live(), followed.live_count(), partition.live_count()) == before


# --- the connection ---


def test_fetcher_asks_with_the_highest_common_versions_when_a_partition_is_followed(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            assert made.served.connections == 0, "the fetcher must not connect before there is something to fetch"
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert values(ours) == values(theirs)
            request = made.replicas.leader.seen[0]
            assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 7)
            assert made.served.clients[0] == "broker-2-fetcher-0"
            await until(lambda: ours.high_watermark == theirs.high_watermark)
            assert made.fetcher.measures.appended_bytes == ours.size_bytes
        assert made.served.connections == made.served.closed == 1

    asyncio.run(run())


def test_fetcher_asks_in_the_leaders_versions_when_they_are_older(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.served.versions |= {ApiKey.FETCH: (4, 13), ApiKey.LIST_OFFSETS: (1, 5)}
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.replicas.leader.seen[0].replica_id == 2
            # ListOffsets version 5 has no tagged fields.
            made.replicas.leader.errors[made.replicas.topic_id, 0] = ErrorCode.OFFSET_OUT_OF_RANGE
            await until(lambda: made.replicas.leader.seen[-1].API_KEY == ApiKey.LIST_OFFSETS)
            made.replicas.leader.errors.clear()
            theirs.append(batch())
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.native.losses == 0

    asyncio.run(run())


def test_fetcher_begins_a_new_session_when_its_connection_breaks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            session_id = made.replicas.leader.session_id
            made.served.break_connections()
            theirs.append(batch())
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.replicas.leader.session_id == session_id + 1
            await until(lambda: "fetcher 0 of broker 1 fetches again" in caplog.text)

    asyncio.run(run())
    assert caplog.text.count("fetcher 0 of broker 1 cannot fetch: ") == 1


def test_fetcher_connects_anew_when_the_broker_has_moved(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.served.held.clear()
            theirs, ours = made.pair()
            await until(lambda: made.served.requests == 1)
            elsewhere = ServedLeader(made.replicas.leader)
            made.fetcher.move(await elsewhere.start())
            await until(lambda: ours.end_offset == theirs.end_offset)
            made.served.held.set()
            await until(lambda: made.served.closed == 1)
            assert elsewhere.connections == 1
            await elsewhere.close()

    asyncio.run(run())


def test_fetcher_ends_its_connection_when_it_follows_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            made.fetcher.stop([ours])
            await until(lambda: made.served.closed == 1)
            assert made.replicas.leader.session == {}, "the leader's session must be empty"
            theirs.append(batch())
            made.fetcher.follow([Follow(ours, LEADER, 5)])
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.served.connections == 2

    asyncio.run(run())


def test_fetcher_waits_when_the_broker_is_not_known(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.fetcher.move(None)
            theirs, ours = made.pair()
            await until(lambda: made.native.link == "wanted")
            await made.fetcher.settled()
            assert made.served.connections == 0
            made.fetcher.move(made.home)
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_fetcher_tries_again_when_the_leader_speaks_no_common_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.served.versions[ApiKey.FETCH] = 0, 11
            theirs, ours = made.pair()
            await until(lambda: made.served.connections > 2)
            made.served.versions[ApiKey.FETCH] = 0, 18
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())
    assert caplog.text.count("FETCH: the leader speaks 0 to 11") == 1


def test_fetcher_tries_again_when_no_file_descriptor_is_left_for_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def dup(handle: int, real: Callable[[int], int] = os.dup) -> int:
        tries.append(handle)
        if len(tries) <= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(handle)

    monkeypatch.setattr(os, "dup", dup)

    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.served.connections == 4, "each try must have its own connection, after a pause"

    asyncio.run(run())
    assert "Too many open files" in caplog.text


def test_fetcher_lets_its_loop_go_on_when_the_leader_sends_bytes_that_nobody_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.served.surplus = b"\0"
            theirs, ours = made.pair()
            await until(lambda: made.served.connections > 2)
            assert ours.end_offset == 0
            made.served.surplus = b""
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_fetcher_asks_on_another_connection_when_an_answer_does_not_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with driven(tmp_path, timeout_ms=50) as made:
            made.served.held.clear()
            theirs, ours = made.pair()
            await until(lambda: made.native.losses > 0)
            made.served.held.set()
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())
    assert "no answer came within replica.socket.timeout.ms" in caplog.text


def test_fetcher_tells_its_new_epoch_when_this_broker_has_registered_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            made.fetcher.registered(8)
            await until(lambda: made.replicas.leader.seen[-1].replica_state.replica_epoch == 8)
            assert made.served.connections == 1

    asyncio.run(run())


# --- the answers that a fetcher accepts ---


@pytest.mark.parametrize(
    "forge",
    [
        lambda frame: frame[:4] + b"\x7f\0\0\1" + frame[8:],
        lambda frame: b"\x7f\xff\xff\xff" + frame[4:],
        lambda frame: b"\xff\xff\xff\xff" + frame[4:],
        lambda frame: b"\0\0\0\3" + frame[4:7],
        lambda frame: frame + b"\0",
        lambda frame: (len(frame) - 6).to_bytes(4, "big") + frame[4:-2],
    ],
    ids=["another-request", "too-large", "negative", "too-small", "unasked-bytes", "cut-off"],
)
def test_fetcher_changes_nothing_when_the_leader_sends_garbage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forge: Callable[[bytes], bytes]
) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.served.forge = forge
            theirs, ours = made.pair()
            await until(lambda: made.native.losses > 1)
            assert ours.end_offset == 0 or forge(b"....12345678")[-1:] == b"\0"
            made.served.forge = lambda frame: frame
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert values(ours) == values(theirs)

    asyncio.run(run())
    assert "sent bytes that are not an answer" in caplog.text


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, 9999])
def test_fetcher_pauses_when_the_leader_refuses_each_request(
    error: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:

            def refuse(answer: object) -> None:
                for name, value in {"error_code": error, "responses": []}.items():
                    setattr(answer, name, value)

            made.replicas.leader.change = refuse
            theirs, ours = made.pair()
            await until(lambda: "was refused: error UNKNOWN_SERVER_ERROR" in caplog.text)
            assert ours.end_offset == 0
            made.replicas.leader.change = lambda answer: None
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.served.connections == 1

    asyncio.run(run())


def test_fetcher_asks_again_when_the_pause_of_a_partition_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            key = made.replicas.topic_id, 0
            made.replicas.leader.errors[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            theirs, ours = made.pair()
            await until(lambda: len(made.replicas.leader.seen) > 3)
            assert ours.end_offset == 0
            made.replicas.leader.errors.clear()
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_fetcher_asks_again_when_the_quota_held_back_all_of_its_partitions(tmp_path: Path) -> None:
    async def run() -> None:
        quota = ReplicationQuota(bytes_per_second=1)
        async with driven(tmp_path, quota=quota) as made:
            quota.record(1 << 20, made.replicas.environment.monotonic_ns() // 1_000_000)
            theirs, ours = made.replicas.log(ours=False), made.replicas.log(ours=True)
            made.replicas.leader.lead(theirs, 5)
            theirs.append(batch())
            ours.throttled = BY_FOLLOWER
            ours.become_follower(LEADER, 5, 5)
            made.fetcher.follow([Follow(ours, LEADER, 5)])
            await until(lambda: made.native.link == "up")
            turns = made.processing.processor.turns
            await until(lambda: made.processing.processor.turns > turns + 5)
            assert made.replicas.leader.seen == [], "the quota is used up, so there is nothing to ask for"
            quota.bytes_per_second = NO_BOUND
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


class Truncating:
    """A native driver that reports a running truncation."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.jobs = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


def test_fetcher_is_settled_only_when_a_truncation_has_ended(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            assert made.native.jobs == 0
            await made.fetcher.settled()
            truncating = Truncating(made.native)
            made.fetcher.native = truncating  # type: ignore[assignment]
            settled = asyncio.ensure_future(made.fetcher.settled())
            done, _ = await asyncio.wait({settled}, timeout=0.1)
            assert not done
            truncating.jobs = 0
            await settled
            made.fetcher.native = made.native

    asyncio.run(run())


def test_fetcher_logs_what_befell_a_partition_when_it_was_truncated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.replicas.log(ours=False), made.replicas.log(ours=True)
            ours.become_leader(9, 4, 4)
            ours.append(batch(count=3))
            made.replicas.leader.lead(theirs, 5)
            theirs.append(batch(count=1))
            ours.become_follower(LEADER, 5, 5)
            made.fetcher.follow([Follow(ours, LEADER, 5)])
            await until(lambda: values(ours) == values(theirs))
            await until(lambda: "partition orders-0 truncated from offset 3 to 0" in caplog.text)

    asyncio.run(run())


# --- sizes ---


def test_answer_arrives_whole_when_it_is_larger_than_every_limit_and_a_turn(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path, max_bytes=1000, response_max_bytes=1000) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert theirs.append(batch(b"x" * (900 << 10), count=1)).error == 0
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert values(ours) == values(theirs)
            assert made.processing.memory > 900 << 10, "the memory budget must count the answer's buffer"
            # After many small answers, the buffer shrinks.
            await until(lambda: made.processing.memory < 100 << 10)

    asyncio.run(run())


def test_large_answer_takes_many_turns_when_it_has_many_partitions(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            pairs = [made.pair(index) for index in range(20)]
            await until(lambda: all(ours.end_offset == theirs.end_offset for theirs, ours in pairs))
            made.served.held.clear()
            for theirs, _ in pairs:
                assert theirs.append(batch(b"x" * (60 << 10), count=1)).error == 0
            turns = made.processing.processor.turns
            made.served.held.set()
            await until(lambda: all(ours.end_offset == theirs.end_offset for theirs, ours in pairs))
            # In a turn, a fetcher reads 64 KiB or appends two batches, which together have the same size.
            assert (made.processing.processor.turns - turns) // 2 > 24

    asyncio.run(run())


def test_python_hears_nothing_when_records_of_many_partitions_arrive(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            pairs = [made.pair(index) for index in range(100)]
            await until(lambda: all(ours.end_offset == theirs.end_offset for theirs, ours in pairs))
            asyncio.get_running_loop().remove_reader(made.native.fileno())
            made.native.heed()
            for theirs, _ in pairs:
                theirs.append(batch())
            await until(lambda: all(ours.end_offset == theirs.end_offset for theirs, ours in pairs))
            orders = made.native.orders
            assert made.native.events() == []
            assert made.native.orders == orders
            asyncio.get_running_loop().add_reader(made.native.fileno(), made.fetcher._heed)

    asyncio.run(run())


# --- closing ---


def test_close_returns_when_records_wait_for_their_log(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            for index in range(20):
                made.pair(index)
            await until(lambda: made.served.requests > 0)

    asyncio.run(run())


def test_close_returns_when_a_connection_is_being_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.pair()
            while made.native.link == "idle":
                time.sleep(0.001)  # noqa: ASYNC251

    asyncio.run(run())
