"""Fetches partitions from the broker that leads them, on a processor thread.

The processor sends the requests and handles the responses without Python code (`_fast.follow.driver`). This module
opens connections, passes them to the processor, and reports errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kafkacore._fast.follow.driver_handle import DriverHandle
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.protocol.errors import KafkaError, ProtocolError
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.replication.fetcher_reports import common_versions, log_event
from kafkacore.replication.fetchers import Address, FetcherMeasures, Follow, until_truncated

LOG: Final = logging.getLogger("kafkacore.replication")


class Greeter(Protocol):
    """Opens connections to one address, with a pause between attempts. `network.client.NodeClient` implements this.
    Calls raise OSError.
    """

    async def api_versions(self) -> Mapping[int, tuple[int, int]]: ...
    async def hand_over(self) -> int: ...
    def disconnect(self) -> None: ...
    async def close(self) -> None: ...


# For tests: watches each connection to an address until the returned function is called.
WatchLink = Callable[[Address, DriverHandle], Callable[[], None]]


class NativeFetcher:
    """A fetcher whose requests and responses a processor handles. Belongs to the running event loop."""

    def __init__(
        self,
        source_id: int,
        number: int,
        native: DriverHandle,
        address: Address | None,
        connect: Callable[[Address], Greeter],
        read_broker_epoch: Callable[[], int],
        backoff_ms: float,
        watch_link: WatchLink | None = None,
    ) -> None:
        """Creates fetcher `number` for the broker `source_id`. `read_broker_epoch` returns the epoch of this broker's
        registration."""
        self._source_id, self._number = source_id, number
        self._name = f"fetcher {number} of broker {source_id}"
        self.native = native
        self._address = address
        self._connect = connect
        self._read_broker_epoch = read_broker_epoch
        self._broker_epoch = -1
        self._backoff_s = backoff_ms / 1000
        self._watch_link = watch_link
        self._unwatch: Callable[[], None] | None = None
        self._greeter: Greeter | None = None
        self._news = asyncio.Event()
        self._failures = self._losses = self._answered = self._refusals = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(native.fileno(), self._heed)
        self._task = self._loop.create_task(self._run())

    # --- calls of the replica manager ---

    def follow(self, partitions: list[Follow]) -> None:
        self.native.follow([(each.partition, each.leader_epoch) for each in partitions])

    def stop(self, partitions: list[PartitionHandle]) -> None:
        self.native.stop(partitions)

    def move(self, address: Address | None) -> None:
        self._address = address
        self._failures = 0
        if self._greeter is not None:
            self._greeter.disconnect()
        self.native.disconnect()
        self._news.set()

    def registered(self, broker_epoch: int) -> None:
        if broker_epoch != self._broker_epoch:
            self._broker_epoch = broker_epoch
            self.native.know_broker_epoch(broker_epoch)

    async def settled(self) -> None:
        await self._until_order(self.native.look())
        await until_truncated(self.native)

    @property
    def measures(self) -> FetcherMeasures:
        return FetcherMeasures(self._source_id, self._number, self._address, *self.native.counts())

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._leave()
        self.native.shut()
        # A truncation must not be interrupted, because a half-truncated log would be damaged.
        while self.native.link != "ended":
            self._news.clear()
            await self._news.wait()
        self._loop.remove_reader(self.native.fileno())
        self._let_link_go()

    # --- events of the processor ---

    def _heed(self) -> None:
        self.native.heed()
        self._news.set()
        for event in self.native.events():
            log_event(event)
        self._report_link()
        self._report_refusals()

    def _report_link(self) -> None:
        if self.native.losses != self._losses:
            self._losses = self.native.losses
            if self.native.lost_kind != "ordered":
                self._failed(self.native.lost_why)
        elif self.native.answered != self._answered:
            self._answered = self.native.answered
            if self._failures:
                LOG.info("%s fetches again", self._name)
            self._failures = 0

    def _report_refusals(self) -> None:
        """Logs error codes from the leader. A single error code may only mean that the leader has dropped the fetch
        session, which is not a failure.
        """
        refusals = self.native.refusals
        if refusals > 1 >= self._refusals:
            LOG.warning("%s was refused: error %s", self._name, error_of_peer(self.native.refusal).name)
        self._refusals = refusals

    def _failed(self, problem: str) -> None:
        self._failures += 1
        if self._failures == 1:
            LOG.warning("%s cannot fetch: %s; it tries again", self._name, problem)

    async def _until_order(self, number: int) -> None:
        while self.native.orders < number:
            self._news.clear()
            await self._news.wait()

    # --- connections ---

    async def _run(self) -> None:
        greeted: Address | None = None
        while True:
            self._news.clear()
            if self._address != greeted:
                await self._leave()
                greeted = self._address
            if greeted is None or self.native.link != "wanted":
                await self._news.wait()
            else:
                await self._hand_over(greeted)

    async def _hand_over(self, address: Address) -> None:
        """Opens a connection, and passes it to the processor."""
        if self._greeter is None:
            self._greeter = self._connect(address)
        losses = self.native.losses
        try:
            spoken = common_versions(await self._greeter.api_versions())
            handle = await self._greeter.hand_over()
        except OSError as problem:  # the greeter waits before it connects again
            self._failed(str(problem))
            return
        except (KafkaError, ProtocolError) as problem:
            self._failed(str(problem))
            self._greeter.disconnect()
            await asyncio.sleep(self._backoff_s)
            return
        if address != self._address:
            os.close(handle)
            return
        self._let_link_go()
        if self._watch_link is not None:
            self._unwatch = self._watch_link(address, self.native)
        self._broker_epoch = self._read_broker_epoch()
        await self._until_order(self.native.attach(handle, spoken.fetch, spoken.list_offsets, self._broker_epoch))
        await self._pause_after_garbage(losses)

    async def _pause_after_garbage(self, losses: int) -> None:
        """Waits until the connection is lost or no longer needed. Waits longer if the other node sent malformed data,
        because the client would then reconnect without a pause.
        """
        while self.native.link == "up":
            self._news.clear()
            await self._news.wait()
        if self.native.losses > losses and self.native.lost_kind == "malformed":
            await asyncio.sleep(self._backoff_s)

    async def _leave(self) -> None:
        greeter, self._greeter = self._greeter, None
        if greeter is not None:
            await greeter.close()

    def _let_link_go(self) -> None:
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()
