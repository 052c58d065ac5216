"""A client of another node (NodeClient) on connections that the tests open and answer themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kafkacore.network.client import Disconnected, NodeClient
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey


class Transport:
    """A transport that answers ApiVersions, and then calls `after`. The answer wakes the task that connects, which
    then ends. So a callback that `after` schedules runs when this task has ended, but before its done callbacks."""

    def __init__(self, protocol: asyncio.Protocol, after: Callable[[], object]) -> None:
        self.protocol, self.after, self.aborted = protocol, after, False

    def writelines(self, parts: tuple[bytes, bytes]) -> None:
        asyncio.get_running_loop().call_soon(self.answer, parts[1][4:8])

    def answer(self, correlation_id: bytes) -> None:
        version = apis.api(ApiKey.API_VERSIONS).highest
        frame = correlation_id + apis.response_class(ApiKey.API_VERSIONS)().encode(version)
        self.protocol.data_received(len(frame).to_bytes(4, "big") + frame)
        self.after()

    def abort(self) -> None:
        self.aborted = True


def request_that_meets(act: Callable[[NodeClient], object]) -> tuple[Transport, NodeClient]:
    """Sends a request on a Transport whose `after` calls `act` with the client. Returns the Transport and client."""
    opened = []

    async def run() -> NodeClient:
        async def connect(factory: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
            protocol = factory()
            opened.append(Transport(protocol, lambda: act(client)))
            protocol.connection_made(opened[0])  # type: ignore[arg-type]

        client = NodeClient("node", 1, None, connect=connect)
        with pytest.raises(Disconnected):
            await client.exchange(ApiKey.METADATA, 0, b"")
        return client

    client = asyncio.run(run())
    assert len(opened) == 1
    return opened[0], client


def test_client_closes_its_connection_when_it_disconnects_before_it_notes_the_connection() -> None:
    transport, client = request_that_meets(lambda client: asyncio.get_running_loop().call_soon(client.disconnect))
    assert transport.aborted
    assert not client.is_connected


def test_client_closes_its_connection_when_it_closes_before_it_notes_the_connection() -> None:
    closing = []
    transport, client = request_that_meets(
        lambda client: closing.append(asyncio.get_running_loop().create_task(client.close()))
    )
    assert transport.aborted
    assert not client.is_connected
    assert closing[0].done()
