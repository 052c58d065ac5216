"""Fetches the partitions that this broker follows from one other broker, over one connection.

The fetcher itself is native (`_fast.follow`): it makes the requests, appends and truncates. This driver sends one
request at a time, from the data loop, in the real world and in a simulated one alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kafkacore._fast.follow.handle import FETCH_VERSIONS, LIST_OFFSETS_VERSIONS, FetcherEvent, FetcherHandle
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.network.client import ClientLimits, Connect, NodeClient
from kafkacore.protocol.apis import ApiKey, api
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError
from kafkacore.replication.fetchers import Address, FetcherMeasures, Fetchers, Follow

LOG: Final = logging.getLogger("kafkacore.replication")
# While a Fetch waits at the leader, a partition that this broker begins to follow must wait for the next Fetch. So a
# Fetch waits at most this long, even if replica.fetch.wait.max.ms allows more.
_MOST_WAIT_MS: Final = 100
_COUNTED_EVERY_MS: Final = 1_000  # counting looks at every partition
_TEXTS: Final = {
    "cut": "truncated from offset %d to %d, where it diverges from its leader's log",
    "cut-to-end": "truncated from offset %d to %d, the end of its leader's log: the leader was elected uncleanly,"
    " or it lost records",
    "restart": "ended at offset %d, below the start of its leader's log, and begins anew at %d",
    "corrupt": "its leader sent records at offset %d that cannot be appended (error %d); they are fetched again",
    "newer-epoch": "its leader sent a batch at offset %d of an epoch above its own, %d; it is fetched again",
    "fenced": "is fetched no longer in leader epoch %d, because its leader has a newer one",
    "failed": "is followed no longer, because its log cannot be written (error %d)",
    "refused": "its leader answered with error %d; it is fetched again after replica.fetch.backoff.ms",
}


class Peer(Protocol):
    """Connects when a call needs it (`network.client.NodeClient`). Calls raise OSError."""

    async def api_versions(self) -> Mapping[int, tuple[int, int]]: ...
    async def exchange(self, api_key: int, version: int, body: bytes) -> memoryview: ...
    def disconnect(self) -> None: ...
    async def close(self) -> None: ...


class RemoteFetcher:
    """Belongs to the running loop."""

    def __init__(
        self,
        source_id: int,
        number: int,
        fetcher: FetcherHandle,
        address: Address | None,
        connect: Callable[[Address], Peer],
        read_broker_epoch: Callable[[], int],
        backoff_ms: float,
    ) -> None:
        """Fetcher `number` of the broker `source_id`. `read_broker_epoch` returns the epoch of this broker's
        registration."""
        self._source_id, self._number = source_id, number
        self._name = f"fetcher {number} of broker {source_id}"
        self.native = fetcher
        self._address = address
        self._connect = connect
        self._read_broker_epoch = read_broker_epoch
        self._backoff_ms = backoff_ms
        self._loop = asyncio.get_running_loop()
        self._peer: Peer | None = None
        self._wake = asyncio.Event()
        self._partitions = 0
        self._failures = 0
        self._counted_ms = 0
        self._loop.add_reader(fetcher.fileno(), self._deliver)
        self._task = self._loop.create_task(self._run())

    # --- what the replica manager wants ---

    def follow(self, partitions: list[Follow]) -> None:
        for each in partitions:
            self.native.follow(each.partition, each.leader_epoch)
        self._wake.set()

    def stop(self, partitions: list[PartitionHandle]) -> None:
        for each in partitions:
            self.native.stop(each)
        self._wake.set()

    def move(self, address: Address | None) -> None:
        self._address = address
        self._failures = 0
        if self._peer is not None:
            self._peer.disconnect()
        self._wake.set()

    @property
    def measures(self) -> FetcherMeasures:
        return FetcherMeasures(self._source_id, self._number, self._address, *self.native.counts())

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._leave()
        self.native.stop_all()
        # A truncation must not be interrupted: a half-truncated log would be damaged.
        while self.native.jobs:
            self._wake.clear()
            await self._wake.wait()
        self._loop.remove_reader(self.native.fileno())

    # --- the requests ---

    def _deliver(self) -> None:
        self.native.deliver()
        self._wake.set()

    async def _run(self) -> None:
        served: Address | None = None
        while True:
            self._wake.clear()
            due_ms = self.native.advance(self._now_ms())
            self._report()
            if self._address != served:
                await self._leave()
                served = self._address
            asked = await self._ask(served)
            if asked is None:
                if not self.native.partitions:
                    await self._leave()
                await self._sleep(due_ms)

    async def _ask(self, address: Address | None) -> bool | None:
        """Sends the next request and takes its answer. Returns None when there is nothing to ask now."""
        if address is None or not self.native.partitions:
            return None
        if self._peer is None:
            self._peer = self._connect(address)
        try:
            versions = await self._peer.api_versions()
            self.native.connected(
                _common(versions, ApiKey.FETCH, FETCH_VERSIONS),
                _common(versions, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSIONS),
                self._read_broker_epoch(),
            )
            request = self.native.ask()
            if request is None:
                return None
            answer = await self._peer.exchange(*request)
            error = self.native.absorb(answer)
        except (OSError, KafkaError, ProtocolError) as problem:
            await self._failed(problem)
        except Exception as problem:
            LOG.exception("%s met an error of its own", self._name)
            await self._failed(problem)
        else:
            await self._refused(error)
        return True

    async def _failed(self, problem: Exception) -> None:
        """Notes a failure. The client itself pauses before it connects again, so only a peer that answers needs a pause
        here."""
        self.native.failed()
        self._failures += 1
        if self._failures == 1:
            LOG.warning("%s cannot fetch: %s; it tries again", self._name, problem)
        if not isinstance(problem, OSError) and self._peer is not None:
            self._peer.disconnect()
            await asyncio.sleep(self._backoff_ms / 1000)

    async def _refused(self, error: int) -> None:
        if not error:
            if self._failures:
                LOG.info("%s fetches again", self._name)
            self._failures = 0
            return
        self._failures += 1
        # The leader has dropped the fetch session, which is no fault: the next request begins a new session.
        if self._failures > 1:
            LOG.warning("%s was refused: error %s", self._name, ErrorCode(error).name)
            await asyncio.sleep(self._backoff_ms / 1000)

    async def _sleep(self, due_ms: int) -> None:
        """Sleeps until there is something to ask."""
        if due_ms < 0:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due_ms - self._now_ms(), 1) / 1000):
                await self._wake.wait()

    async def _leave(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _report(self) -> None:
        for event in self.native.events():
            _log(event)
        now_ms = self._now_ms()
        if now_ms >= self._counted_ms + _COUNTED_EVERY_MS:
            self._counted_ms = now_ms
            self.native.count()


def _log(event: FetcherEvent) -> None:
    text = _TEXTS[event.kind]
    numbers = (event.first, event.second)[: text.count("%d")]
    LOG.warning("partition %s-%d %s", event.topic, event.partition, text % numbers)


def _common(versions: Mapping[int, tuple[int, int]], key: int, ours: tuple[int, int]) -> int:
    lowest, highest = versions.get(key, (0, -1))
    chosen = min(highest, ours[1])
    if chosen < max(lowest, ours[0]):
        raise ProtocolError(
            f"{api(key).name}: the leader speaks {lowest} to {highest}, this broker {ours[0]} to {ours[1]}"
        )
    return chosen


def make_fetchers(
    config: BrokerConfig,
    environment: Environment,
    randomness: random.Random,
    connect: Connect | None,
    read_broker_epoch: Callable[[], int],
) -> Fetchers:
    """The fetchers of a broker. `connect` makes connections as `loop.create_connection` does; None: the running loop
    does."""
    limits = ClientLimits(
        request_timeout_ms=config.replica_socket_timeout_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
    )

    def connected_to(address: Address, client_id: str) -> Peer:
        return NodeClient(*address, client_id, limits=limits, randomness=randomness, connect=connect)

    def make(source_id: int, number: int, address: Address | None) -> RemoteFetcher:
        client_id = f"broker-{config.node_id}-fetcher-{number}"
        native = FetcherHandle(
            environment,
            config.node_id,
            max_wait_ms=min(config.replica_fetch_wait_max_ms, _MOST_WAIT_MS),
            min_bytes=config.replica_fetch_min_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            max_bytes=config.replica_fetch_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
        )
        return RemoteFetcher(
            source_id,
            number,
            native,
            address,
            lambda where: connected_to(where, client_id),
            read_broker_epoch,
            config.replica_fetch_backoff_ms,
        )

    return Fetchers(config.num_replica_fetchers, make)
