"""The Python driver of a fetcher: its connections, its pauses, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from followed_leader import Leader, Replicas, batch, values
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.replication_quota import BY_FOLLOWER, NO_BOUND, ReplicationQuota
from kafkacore.network.client import Disconnected
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.replication.fetchers import Address, Follow
from kafkacore.replication.remote_fetcher import RemoteFetcher

HOME, ELSEWHERE = Address("leader", 9092), Address("leader", 9093)
VERSIONS = {ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 10)}
LIMIT_S = 20


class FakePeer:
    """A stub of a connection to the leader. It delivers no answers while `held` is not set."""

    def __init__(self, leader: Leader, address: Address) -> None:
        self.leader, self.address = leader, address
        self.versions = VERSIONS
        self.broken: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()
        self.closed = self.ended = 0
        self.requests = 0

    async def api_versions(self) -> dict[ApiKey, tuple[int, int]]:
        if (broken := self.broken) is not None:
            await asyncio.sleep(0)  # at this point the client waits before it connects again
            raise broken
        return self.versions

    async def exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        self.requests += 1
        await asyncio.sleep(0)
        await self.held.wait()
        if self.broken is not None:
            raise self.broken
        return memoryview(self.leader.answer(api_key, version, body))

    def disconnect(self) -> None:
        self.ended += 1

    async def close(self) -> None:
        self.closed += 1


class Driven:
    def __init__(self, path: Path, quota: ReplicationQuota | None) -> None:
        self.replicas = Replicas(path, backoff_ms=10, quota=quota)
        self.peers: list[FakePeer] = []
        self.prepare: Callable[[FakePeer], object] = lambda peer: None
        self.epoch = 7
        self.fetcher = RemoteFetcher(1, 0, self.replicas.fetcher, HOME, self._connect, lambda: self.epoch, 10)

    def _connect(self, address: Address) -> FakePeer:
        peer = FakePeer(self.replicas.leader, address)
        self.prepare(peer)
        self.peers.append(peer)
        return peer

    def pair(self, index: int = 0) -> tuple[PartitionHandle, PartitionHandle]:
        theirs, ours = self.replicas.log(index, ours=False), self.replicas.log(index, ours=True)
        self.replicas.leader.lead(theirs, 5)
        theirs.append(batch())
        ours.become_follower(1, 5, 5)
        self.fetcher.follow([Follow(ours, 1, 5)])
        return theirs, ours


@asynccontextmanager
async def driven(path: Path, quota: ReplicationQuota | None = None) -> AsyncIterator[Driven]:
    async with asyncio.timeout(LIMIT_S):
        made = Driven(path, quota)
        try:
            yield made
        finally:
            await made.fetcher.close()
            made.replicas.close()


async def until(condition: Callable[[], bool]) -> None:
    """Repeats iterations of the event loop until the condition holds. Each iteration handles answers and reports."""
    while not condition():  # noqa: ASYNC110 - the condition has no event to wait for
        await asyncio.sleep(0.001)


def test_driver_fetches_with_the_highest_common_versions_when_a_partition_is_followed(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            assert not made.peers, "the fetcher must not connect before there is something to fetch"
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert values(ours) == values(theirs)
            request = made.replicas.leader.seen[-1]
            assert request.replica_state.replica_epoch == 7
            assert request.max_wait_ms <= 500
        assert made.peers[0].closed == 1

    asyncio.run(run())


def test_driver_goes_on_with_a_new_session_when_its_connection_breaks(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            (peer,) = made.peers
            peer.broken = Disconnected("cut")
            failed = made.replicas.leader.session_id
            await until(lambda: made.replicas.fetcher.session[1] == 0)
            peer.broken = None
            theirs.append(batch())
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert made.replicas.leader.session_id == failed + 1

    asyncio.run(run())


def test_driver_connects_anew_when_the_broker_has_moved(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.prepare = lambda peer: peer.held.clear() if peer.address == HOME else None
            theirs, ours = made.pair()
            await until(lambda: bool(made.peers and made.peers[0].requests))
            made.fetcher.move(ELSEWHERE)
            made.peers[0].broken = Disconnected("moved")
            made.peers[0].held.set()
            await until(lambda: ours.end_offset == theirs.end_offset)
            assert [peer.address for peer in made.peers] == [HOME, ELSEWHERE]
            assert made.peers[0].ended == made.peers[0].closed == 1

    asyncio.run(run())


def test_driver_asks_again_when_the_quota_held_back_all_of_its_partitions(tmp_path: Path) -> None:
    async def run() -> None:
        quota = ReplicationQuota(bytes_per_second=1)
        async with driven(tmp_path, quota) as made:
            quota.record(1 << 20, made.replicas.environment.monotonic_ns() // 1_000_000)
            theirs, ours = made.pair()
            ours.throttled = BY_FOLLOWER
            await until(lambda: made.replicas.fetcher.state(ours) == "delayed")
            assert made.replicas.leader.seen == [], "the quota is used up, so there is nothing to ask for"
            quota.bytes_per_second = NO_BOUND
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_driver_ends_its_connection_when_it_follows_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            theirs, ours = made.pair()
            await until(lambda: ours.end_offset == theirs.end_offset)
            made.fetcher.stop([ours])
            await until(lambda: made.peers[0].closed == 1)
            assert made.replicas.leader.session == {}, "the leader's session must be empty"

    asyncio.run(run())


def test_driver_waits_when_the_broker_is_not_known(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.fetcher.move(None)
            theirs, ours = made.pair()
            await until(lambda: not made.fetcher._wake.is_set())  # the fetcher has handled the wake-up
            assert not made.peers
            made.fetcher.move(HOME)
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_driver_tries_again_when_the_leader_speaks_no_common_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            made.prepare = lambda peer: setattr(peer, "versions", {ApiKey.FETCH: (0, 11)})
            theirs, ours = made.pair()
            await until(lambda: bool(made.peers and made.peers[0].ended > 1))
            made.peers[0].versions = VERSIONS
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())
    assert caplog.text.count("FETCH: the leader speaks 0 to 11") == 1


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, 9999])
def test_driver_pauses_when_the_leader_refuses_each_request(
    error: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:

            def refuse(answer: object) -> None:
                vars_of = {"error_code": error, "responses": []}
                for name, value in vars_of.items():
                    setattr(answer, name, value)

            made.replicas.leader.change = refuse
            theirs, ours = made.pair()
            await until(lambda: "UNKNOWN_SERVER_ERROR" in caplog.text)
            assert ours.end_offset == 0
            made.replicas.leader.change = lambda answer: None
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_driver_fetches_a_delayed_partition_again_when_its_pause_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            key = made.replicas.topic_id, 0
            made.replicas.leader.errors[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            theirs, ours = made.pair()
            await until(lambda: made.replicas.fetcher.state(ours) == "delayed")
            made.replicas.leader.errors.clear()
            await until(lambda: ours.end_offset == theirs.end_offset)

    asyncio.run(run())


def test_driver_is_settled_only_when_a_truncation_has_ended(tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(tmp_path) as made:
            native = made.replicas.fetcher
            # From now on, the loop does not take the results of truncations.
            asyncio.get_running_loop().remove_reader(native.fileno())
            theirs, ours = made.replicas.log(ours=False), made.replicas.log(ours=True)
            ours.become_leader(9, 4, 4)
            ours.append(batch(count=3))
            made.replicas.leader.lead(theirs, 5)
            ours.become_follower(1, 5, 5)
            made.fetcher.follow([Follow(ours, 1, 5)])
            await until(lambda: native.jobs == 1)
            made.fetcher.stop([ours])
            settled = asyncio.ensure_future(made.fetcher.settled())
            done, _ = await asyncio.wait({settled}, timeout=0.1)
            assert not done
            while native.jobs:
                native.deliver()
                await asyncio.sleep(0.001)
            await settled

    asyncio.run(run())


def test_driver_logs_what_befell_a_partition_when_it_was_truncated(
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
            ours.become_follower(1, 5, 5)
            made.fetcher.follow([Follow(ours, 1, 5)])
            await until(lambda: values(ours) == values(theirs))

    asyncio.run(run())
    assert "partition orders-0 truncated from offset 3 to 0" in caplog.text
