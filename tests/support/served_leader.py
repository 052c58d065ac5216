"""The leader of `followed_leader` on a real socket of the running event loop, and a processor whose fetcher follows
this leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from followed_leader import FOLLOWER, LEADER, Leader, Replicas, batch
from kafkacore._fast.follow.driver_handle import DriverHandle
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.plane.plane import NativePlane
from kafkacore._fast.plane.processor import NativeProcessor
from kafkacore._fast.schema.headers import request_header
from kafkacore._fast.world.environment import Environment
from kafkacore.network.client import ClientLimits, NodeClient
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import ApiVersionsResponse
from kafkacore.replication.fetchers import Address, Follow
from kafkacore.replication.native_fetcher import NativeFetcher

LIMIT_S = 60
VERSIONS = {ApiKey.API_VERSIONS: (0, 4), ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 11)}
POLL_S = 0.001  # the pause before an empty answer, because this leader ignores the max wait of a Fetch


class ServedLeader:
    """A node with one listener. It sends no answers while `held` is not set. `forge` may change the frame of an answer.
    `surplus` follows each answer to ApiVersions."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.versions = dict(VERSIONS)
        self.held = asyncio.Event()
        self.held.set()
        self.forge: Callable[[bytes], bytes] = lambda frame: frame
        self.surplus = b""
        self.clients: list[str] = []
        self.connections = self.closed = self.requests = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Address(*self._server.sockets[0].getsockname()[:2])

    def break_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._answer(await reader.readexactly(size), writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed += 1
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = request_header(frame)
        assert header is not None
        key, version, correlation_id, client, start = header
        if key == ApiKey.API_VERSIONS:
            body = self._api_versions().encode(version)
        else:
            self.requests += 1
            self.clients.append((client or b"").decode())
            await asyncio.sleep(POLL_S)
            await self.held.wait()
            body = self.leader.answer(key, version, frame[start:])
        answer = apis.response_header(key, version, correlation_id) + body
        answer = len(answer).to_bytes(4, "big") + answer
        writer.write(self.forge(answer) if key != ApiKey.API_VERSIONS else answer + self.surplus)
        await writer.drain()

    def _api_versions(self) -> Any:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.versions.items()
            ]
        )

    async def close(self) -> None:
        self._server.close()
        self.held.set()
        self.break_connections()
        await self._server.wait_closed()
        while self._writers:  # noqa: ASYNC110 - the tasks have no event to wait for
            await asyncio.sleep(0.001)


class Processing:
    """A network plane with one processor."""

    def __init__(self, environment: Environment, **limits: int) -> None:
        self.plane = NativePlane("data", environment, ring_capacity=16, memory_bytes=128 << 20, **limits)
        self.processor = NativeProcessor("test-follow", environment)
        self.processor.serve(self.plane)

    @property
    def memory(self) -> int:
        used: int = self.plane.counters()["memory_used_bytes"]
        return used

    def close(self) -> None:
        self.processor.stop()


class Driven:
    """A leader on a socket, and the fetcher of a processor that follows it."""

    def __init__(
        self,
        path: Path,
        backoff_ms: int = 10,
        timeout_ms: int = 30_000,
        quota: ReplicationQuota | None = None,
        **limits: int,
    ) -> None:
        self.replicas = Replicas(path, environment=Environment())
        self.processing = Processing(self.replicas.environment, turn_bytes=64 << 10)
        self.served = ServedLeader(self.replicas.leader)
        self.epoch = 7
        self.native = DriverHandle(
            self.processing.plane, self.processing.processor, FOLLOWER, "broker-2-fetcher-0",
            backoff_ms=backoff_ms, timeout_ms=timeout_ms, quota=quota, **limits,
        )  # fmt: skip
        self.backoff_ms = backoff_ms
        self.news = 0

    async def start(self) -> None:
        self.home = await self.served.start()
        self.fetcher = NativeFetcher(
            1, 0, self.native, self.home, self._connect, lambda: self.epoch, self.backoff_ms
        )  # fmt: skip

    def _connect(self, address: Address) -> NodeClient:
        return NodeClient(*address, "broker-2-fetcher-0", limits=ClientLimits(reconnect_backoff_ms=1))

    def pair(self, index: int = 0, epoch: int = 5) -> tuple[PartitionHandle, PartitionHandle]:
        """Returns the leader's log of a partition with two records, and the follower's log."""
        theirs, ours = self.replicas.log(index, ours=False), self.replicas.log(index, ours=True)
        self.replicas.leader.lead(theirs, epoch)
        theirs.append(batch())
        ours.become_follower(LEADER, epoch, epoch)
        self.fetcher.follow([Follow(ours, LEADER, epoch)])
        return theirs, ours

    async def close(self) -> None:
        await self.fetcher.close()
        await self.served.close()
        self.replicas.close()


@asynccontextmanager
async def driven(path: Path, quota: ReplicationQuota | None = None, **limits: int) -> AsyncIterator[Driven]:
    made = Driven(path, quota=quota, **limits)
    processing = made.processing
    async with asyncio.timeout(LIMIT_S):
        await made.start()
        try:
            yield made
        finally:
            await made.close()
    assert processing.memory == 0, "the processor still holds memory"
    processing.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a processor sends no event
        await asyncio.sleep(0.001)
