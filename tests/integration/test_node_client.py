"""The client side against a plane of this process: versions, pipelining, time-outs, broken connections."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore.network.client import ClientLimits, Disconnected, NodeClient
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import UnsupportedVersionError
from kafkacore.protocol.messages import (
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
)
from kafkacore.runtime.process import CONTROLLER, Runtime

RANGES = [(ApiKey.API_VERSIONS, 0, 4), (ApiKey.DESCRIBE_CLUSTER, 0, 1)]


def controller() -> Any:
    async def answer(context: RequestContext, body: memoryview) -> bytes:
        response: Any
        if context.api_key == ApiKey.API_VERSIONS:
            ranges = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in RANGES]
            response = ApiVersionsResponse(api_keys=ranges)
        else:
            request = DescribeClusterRequest.decode(body, context.api_version)
            if request.include_cluster_authorized_operations:
                await asyncio.sleep(30)
            response = DescribeClusterResponse(cluster_id="it", controller_id=context.api_version)
        return apis.encode_response(context.api_key, context.api_version, context.correlation_id, response)

    return answer


@pytest.fixture
def plane() -> Iterator[Plane]:
    runtime = Runtime(data_processors=1, spin_us=0)
    made = Plane(CONTROLLER, [Listener("CONTROLLER", "127.0.0.1", 0)], controller(), RANGES, runtime=runtime)
    yield made
    made.loop.run(made.stop(), 10)
    runtime.close()


def serve(plane: Plane) -> int:
    port = plane.open()["CONTROLLER"][1]
    plane.loop.run(plane.start())
    return port


def test_the_highest_common_version_is_spoken(plane: Plane) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, "test")
        response = await client.request(DescribeClusterRequest())
        assert (response.cluster_id, response.controller_id) == ("it", 1)
        assert (await client.request(DescribeClusterRequest(), version=0)).controller_id == 0
        assert (await client.api_versions())[ApiKey.DESCRIBE_CLUSTER] == (0, 1)
        with pytest.raises(UnsupportedVersionError):
            await client.request(FindCoordinatorRequest())
        await client.close()

    asyncio.run(story(serve(plane)))


def test_requests_are_pipelined(plane: Plane) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, None)
        responses = await asyncio.gather(*(client.request(DescribeClusterRequest()) for _ in range(500)))
        assert {response.cluster_id for response in responses} == {"it"}
        await client.close()

    asyncio.run(story(serve(plane)))


def test_an_answer_that_does_not_come_times_out_and_harms_nothing(plane: Plane) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, "test")
        slow = DescribeClusterRequest(include_cluster_authorized_operations=True)
        with pytest.raises(TimeoutError):
            await client.request(slow, timeout_ms=50)
        assert client.is_connected
        await client.close()

    asyncio.run(story(serve(plane)))


def test_a_node_that_is_not_there_is_tried_again(plane: Plane) -> None:
    async def story() -> None:
        limits = ClientLimits(reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        client = NodeClient("127.0.0.1", port, "test", limits=limits)
        for _ in range(3):
            with pytest.raises(Disconnected, match=f"127.0.0.1:{port} cannot be reached"):
                await client.request(DescribeClusterRequest())
        client.port = await asyncio.to_thread(serve, plane)
        assert (await client.request(DescribeClusterRequest())).cluster_id == "it"
        await client.close()

    asyncio.run(story())


def test_a_connection_that_breaks_fails_what_is_under_way_and_comes_back(plane: Plane) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, "test")
        await client.request(DescribeClusterRequest())
        slow = asyncio.create_task(client.request(DescribeClusterRequest(include_cluster_authorized_operations=True)))
        while plane.native.counters()["requests_out"] == 0:  # noqa: ASYNC110 - a counter of other threads
            await asyncio.sleep(0.002)
        plane.native.start_draining(force=True)
        for processor in plane.processors:
            processor.sweep()
        with pytest.raises(Disconnected):
            await slow
        await client.close()
        with pytest.raises(Disconnected, match="closed"):
            await client.request(DescribeClusterRequest())

    asyncio.run(story(serve(plane)))


def test_bytes_that_are_no_answer_break_the_connection() -> None:
    async def story() -> None:
        async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"\xff" * 100)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        client = NodeClient("127.0.0.1", server.sockets[0].getsockname()[1], "test")
        with pytest.raises(Disconnected):
            await client.request(DescribeClusterRequest())
        await client.close()
        server.close()

    asyncio.run(story())
