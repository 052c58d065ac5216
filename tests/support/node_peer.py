"""A node that a test imitates on a real socket, for clients in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import ApiVersionsResponse, DescribeClusterResponse

RANGES = [(ApiKey.API_VERSIONS, 0, 4), (ApiKey.DESCRIBE_CLUSTER, 0, 1)]


class Peer:
    """A node that this test imitates. It answers ApiVersions itself. For every later frame it sends the bytes that
    `answer` returns."""

    def __init__(self, answer: Callable[[int], bytes | None], versions: bytes | None = None) -> None:
        self.answer = answer
        self.versions = versions
        self.connections = self.ended = self.asked = 0
        self.silent = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.until(lambda: self.ended == self.connections)
        self._server.close()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not done():  # noqa: ASYNC110 - streams and connections have no event to wait for
                await asyncio.sleep(0.001)

    async def say(self, answer: bytes) -> None:
        """Sends a response on the newest connection."""
        self._writer.write(len(answer).to_bytes(4, "big") + answer)
        await self._writer.drain()

    async def hang_up(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writer = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                correlation_id = int.from_bytes(frame[4:8], "big")
                if int.from_bytes(frame[:2], "big") == ApiKey.API_VERSIONS:
                    ranges = [
                        ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in RANGES
                    ]
                    told = apis.encode_response(
                        ApiKey.API_VERSIONS, 4, correlation_id, ApiVersionsResponse(api_keys=ranges)
                    )
                    answer: bytes | None = told if self.versions is None else self.versions
                else:
                    answer = self.answer(correlation_id)
                    self.asked += 1
                if answer is not None and not self.silent:
                    writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended += 1
        finally:
            writer.close()


def good_answer(correlation_id: int) -> bytes:
    return apis.encode_response(ApiKey.DESCRIBE_CLUSTER, 1, correlation_id, DescribeClusterResponse(cluster_id="it"))
