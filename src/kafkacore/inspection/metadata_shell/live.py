"""An observer fetches the metadata image of a live quorum. The observer has no node id, so no leader lists it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from kafkacore.inspection.metadata_shell.files import UnreachableOffsetError
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import decode_batch
from kafkacore.metadata.snapshot import ImageLoad
from kafkacore.network.client import NodeClient
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import ZERO
from kafkacore.raft.committed import CommittedBatch
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.roles import NOBODY
from kafkacore.raft.tail_log import TailLog
from kafkacore.runtime.randomness import randomness
from kafkacore.storage.quorum_state import QuorumState

CLIENT_ID: Final = "kafkacore-metadata-shell"
POLL_S: Final = 0.02

Address = tuple[str, int]


class NoAnswerError(ConnectionError):
    """No controller has sent the metadata within the time limit."""


class Observer:
    """Follows the quorum of the controllers at `addresses`, on a separate thread.

    `image` is the newest committed image that the observer has received. With `at_offset`, it is the image after the
    last batch that ends at or before this offset.
    """

    def __init__(self, addresses: Sequence[Address], cluster_id: str, at_offset: int | None = None) -> None:
        self._addresses, self._cluster_id, self._at_offset = tuple(addresses), cluster_id, at_offset
        self._publisher = MetadataPublisher()
        self._applied = _Applied(self._publisher, at_offset)
        self._ready: Future[None] = Future()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), name="kc-observer", daemon=True)

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    def start(self, limit_s: float) -> None:
        """Starts the thread. Waits until the image has caught up with the quorum's state at the time of this call, or
        has reached `at_offset`.

        Raises UnreachableOffsetError, NoAnswerError, MetadataError.
        """
        self._thread.start()
        try:
            self._ready.result(limit_s)
        except TimeoutError:
            where = ", ".join(f"{host}:{port}" for host, port in self._addresses)
            raise NoAnswerError(f"no controller at {where} gave the metadata within {limit_s:g} s") from None

    def close(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    async def _follow(self) -> None:
        clients = _Clients()
        with ThreadPoolExecutor(1) as executor:
            log = TailLog()
            driver = RaftDriver(
                RaftConfig(
                    node_id=NOBODY, directory_id=ZERO, cluster_id=self._cluster_id, bootstrap=self._addresses,
                    can_vote=False,
                ),
                log, None,
                decode=decode_batch,
                persist=_forget,
                network=clients,
                executor=executor,
                random=randomness(),
                now_ms=lambda: time.monotonic_ns() // 1_000_000,
                wall_ms=lambda: time.time_ns() // 1_000_000,
                on_fault=self._failed,
            )  # fmt: skip
            driver.add_listener(self._applied)
            driver.add_listener(log)
            await driver.start()
            while not self._ending.is_set():
                self._look(driver)
                await asyncio.sleep(POLL_S)
            await driver.stop()
        await clients.close()

    def _look(self, driver: RaftDriver) -> None:
        committed = driver.high_watermark - 1
        if self._ready.done() or driver.leader_id == NOBODY or committed < 0:
            return
        if self._at_offset is not None and committed < self._at_offset:
            self._failed(UnreachableOffsetError(f"the quorum has committed the offsets up to {committed}"))
        elif self._applied.seen_offset >= (committed if self._at_offset is None else self._at_offset):
            self._ready.set_result(None)

    def _failed(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)


class _Applied:
    """The listener that passes committed metadata, up to and including the offset `last`, to the publisher.
    `seen_offset` is the last offset that the listener has received."""

    def __init__(self, publisher: MetadataPublisher, last: int | None) -> None:
        self._publisher, self._last = publisher, last
        self.seen_offset = -1

    def on_batch(self, batch: CommittedBatch) -> None:
        publisher, last = self._publisher, self._last
        self.seen_offset = batch.last_offset
        if last is not None and batch.last_offset > last:
            return
        if batch.records:
            publisher.apply(batch.records, batch.base_offset, batch.epoch, batch.timestamp_ms)
        else:
            publisher.skip(batch.last_offset, batch.epoch, batch.timestamp_ms)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> ImageLoad:
        if self._last is not None and offset > self._last:
            raise UnreachableOffsetError(
                f"the quorum's oldest state is at offset {offset}, in the snapshot that the leader sends; look for an "
                "older one in the directories of the controllers"
            )

        def loaded(image: MetadataImage) -> None:
            self._publisher.replace(image)
            self.seen_offset = offset

        return ImageLoad(offset, epoch, timestamp_ms, loaded)

    def on_leading(self, epoch: int) -> None:
        """Does nothing, because an observer never leads."""

    def on_following(self, epoch: int) -> None:
        """Does nothing, because an observer always follows."""


class _Clients:
    """The connections to the controllers, one for each controller to which the observer sends requests."""

    def __init__(self) -> None:
        self._clients: dict[Address, NodeClient] = {}

    async def send(self, host: str, port: int, request: Message) -> Any:
        client = self._clients.get((host, port))
        if client is None:
            client = self._clients[host, port] = NodeClient(host, port, CLIENT_ID)
        return await client.request(request)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def _forget(state: QuorumState, version: int) -> None:
    """Writes nothing, because the observer needs its knowledge of the quorum only as long as its process runs."""
