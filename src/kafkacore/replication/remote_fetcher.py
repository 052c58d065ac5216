"""Fetches partitions from the broker that leads them, over one connection of the running loop.

Native code (`_fast.follow`) builds the requests, appends and truncates. This driver sends one request at a time. It
runs in simulated clusters, which have no processors (native I/O threads). A real broker uses `native_fetcher`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kafkacore._fast.follow.handle import FetcherHandle
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.protocol.errors import KafkaError, ProtocolError
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.replication.fetcher_reports import common_versions, log_event
from kafkacore.replication.fetchers import Address, FetcherMeasures, Follow, until_truncated

LOG: Final = logging.getLogger("kafkacore.replication")
_COUNTED_EVERY_MS: Final = 1_000  # the lag is counted only this often, because counting checks every partition


class Peer(Protocol):
    """A connection to one address, opened when a call needs it. `network.client.NodeClient` implements this. Calls
    raise OSError.
    """

    async def api_versions(self) -> Mapping[int, tuple[int, int]]: ...
    async def exchange(self, api_key: int, version: int, body: bytes) -> memoryview: ...
    def disconnect(self) -> None: ...
    async def close(self) -> None: ...


class RemoteFetcher:
    """A fetcher whose requests and responses the running event loop handles. Belongs to that loop."""

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
        """Creates fetcher `number` for the broker `source_id`. `read_broker_epoch` returns the epoch of this broker's
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

    # --- calls of the replica manager ---

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

    async def settled(self) -> None:
        await until_truncated(self.native)  # this driver executes each call immediately

    def registered(self, broker_epoch: int) -> None:
        """Does nothing, because each request reads the current epoch."""

    @property
    def measures(self) -> FetcherMeasures:
        return FetcherMeasures(self._source_id, self._number, self._address, *self.native.counts())

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._leave()
        self.native.stop_all()
        # A truncation must not be interrupted, because a half-truncated log would be damaged.
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
            self.native.advance(self._now_ms())
            self._report()
            if self._address != served:
                await self._leave()
                served = self._address
            asked = await self._ask(served)
            if asked is None:
                if not self.native.partitions:
                    await self._leave()
                await self._sleep(self.native.due_ms)

    async def _ask(self, address: Address | None) -> bool | None:
        """Sends the next request and handles its response. Returns None if there is nothing to request now."""
        if address is None or not self.native.partitions:
            return None
        if self._peer is None:
            self._peer = self._connect(address)
        try:
            versions = await self._peer.api_versions()
            self.native.connected(*common_versions(versions), self._read_broker_epoch())
            request = self.native.ask()
            if request is None:
                return None
            answer = await self._peer.exchange(*request)
            error = self.native.absorb(answer)
        except (OSError, KafkaError, ProtocolError) as problem:
            await self._failed(problem)
        except Exception as problem:
            LOG.exception("%s failed because of an internal error", self._name)
            await self._failed(problem)
        else:
            await self._refused(error)
        return True

    async def _failed(self, problem: Exception) -> None:
        """Notes a failure. After an OSError, the client pauses before it reconnects. So this driver pauses only after
        other errors.
        """
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
        # The leader has dropped the fetch session, which is not a failure: the next request creates a new session.
        if self._failures > 1:
            LOG.warning("%s was refused: error %s", self._name, error_of_peer(error).name)
            await asyncio.sleep(self._backoff_ms / 1000)

    async def _sleep(self, due_ms: int) -> None:
        """Sleeps until there is something to request."""
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
            log_event(event)
        now_ms = self._now_ms()
        if now_ms >= self._counted_ms + _COUNTED_EVERY_MS:
            self._counted_ms = now_ms
            self.native.count()
