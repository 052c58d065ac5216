"""NodeClient against a server in the same process: versions, pipelining, timeouts, broken connections."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore.network.client import ClientLimits, Disconnected, MalformedAnswerError, NodeClient
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
from node_peer import RANGES, Peer, good_answer


def controller(is_waiting: threading.Event) -> Any:
    """Returns a handler that answers all requests but one. The request that asks for authorized operations sets the
    event and never gets an answer."""

    async def answer(context: RequestContext, body: memoryview) -> bytes:
        response: Any
        if context.api_key == ApiKey.API_VERSIONS:
            ranges = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in RANGES]
            response = ApiVersionsResponse(api_keys=ranges)
        else:
            request = DescribeClusterRequest.decode(body, context.api_version)
            if request.include_cluster_authorized_operations:
                is_waiting.set()
                await asyncio.Event().wait()
            response = DescribeClusterResponse(cluster_id="it", controller_id=context.api_version)
        return apis.encode_response(context.api_key, context.api_version, context.correlation_id, response)

    return answer


@pytest.fixture
def is_waiting() -> threading.Event:
    return threading.Event()


@pytest.fixture
def plane(is_waiting: threading.Event) -> Iterator[Plane]:
    runtime = Runtime(data_processors=1, spin_us=0)
    made = Plane(CONTROLLER, [Listener("CONTROLLER", "127.0.0.1", 0)], controller(is_waiting), RANGES, runtime=runtime)
    yield made
    made.loop.run(made.stop(), 10)
    runtime.close()


def serve(plane: Plane) -> int:
    port = plane.open()["CONTROLLER"][1]
    plane.loop.run(plane.start())
    return port


def test_client_uses_the_highest_common_version(plane: Plane) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, "test")
        response = await client.request(DescribeClusterRequest())
        assert (response.cluster_id, response.controller_id) == ("it", 1)
        assert (await client.request(DescribeClusterRequest(), version=0)).controller_id == 0
        assert (await client.api_versions())[ApiKey.DESCRIBE_CLUSTER] == (0, 1)
        with pytest.raises(UnsupportedVersionError, match=f"127.0.0.1:{port} does not serve FIND_COORDINATOR"):
            await client.request(FindCoordinatorRequest())
        await client.close()

    asyncio.run(story(serve(plane)))


def test_request_in_no_common_version_names_the_node_and_the_versions() -> None:
    only_new = ApiVersionsResponse.ApiVersion(api_key=ApiKey.DESCRIBE_CLUSTER, min_version=90, max_version=91)
    versions = apis.encode_response(ApiKey.API_VERSIONS, 4, 1, ApiVersionsResponse(api_keys=[only_new]))

    async def story() -> None:
        async with Peer(good_answer, versions) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test")
            problem = (
                f"127.0.0.1:{peer.port} serves DESCRIBE_CLUSTER in versions 90 to 91, but this program needs 0 to "
            )
            with pytest.raises(UnsupportedVersionError, match=problem):
                await client.request(DescribeClusterRequest())
            await client.close()

    asyncio.run(story())


def test_requests_are_pipelined(plane: Plane) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, None)
        responses = await asyncio.gather(*(client.request(DescribeClusterRequest()) for _ in range(500)))
        assert {response.cluster_id for response in responses} == {"it"}
        await client.close()

    asyncio.run(story(serve(plane)))


def test_client_tries_a_missing_node_again(plane: Plane) -> None:
    async def story() -> None:
        limits = ClientLimits(reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        client = NodeClient("127.0.0.1", port, "test", limits=limits)
        for _ in range(3):
            with pytest.raises(Disconnected, match=f"^127.0.0.1:{port} cannot be reached: Connection refused$"):
                await client.request(DescribeClusterRequest())
        client.port = await asyncio.to_thread(serve, plane)
        assert (await client.request(DescribeClusterRequest())).cluster_id == "it"
        await client.close()

    asyncio.run(story())


def test_broken_connection_fails_its_requests_and_closed_client_stays_closed(
    plane: Plane, is_waiting: threading.Event
) -> None:
    async def story(port: int) -> None:
        client = NodeClient("127.0.0.1", port, "test")
        await client.request(DescribeClusterRequest())
        slow = asyncio.create_task(client.request(DescribeClusterRequest(include_cluster_authorized_operations=True)))
        assert await asyncio.to_thread(is_waiting.wait, 10)
        plane.native.start_draining(force=True)
        for processor in plane.processors:
            processor.sweep()
        with pytest.raises(Disconnected):
            await slow
        await client.close()
        with pytest.raises(Disconnected, match="closed"):
            await client.request(DescribeClusterRequest())

    asyncio.run(story(serve(plane)))


def test_invalid_bytes_break_the_connection() -> None:
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


def test_request_that_times_out_closes_its_connection() -> None:
    """After a timeout the client must use a new connection. If the network fails without an error, the old connection
    is dead."""

    async def story() -> None:
        answers = iter([None, None])
        async with Peer(lambda correlation_id: next(answers, good_answer(correlation_id))) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test")
            other = asyncio.create_task(client.request(DescribeClusterRequest()))
            await peer.until(lambda: client.is_connected)
            with pytest.raises(TimeoutError, match="did not answer in time"):
                await client.request(DescribeClusterRequest(), timeout_ms=50)
            assert not client.is_connected
            await peer.until(lambda: peer.ended == 1)
            with pytest.raises(Disconnected, match=r"a request to 127\.0\.0\.1:\d+ timed out"):
                await other
            assert (await client.request(DescribeClusterRequest())).cluster_id == "it"
            assert peer.connections == 2
            await client.close()

    asyncio.run(story())


def test_caller_that_gives_up_leaves_the_connection_to_the_others() -> None:
    async def story() -> None:
        asked = asyncio.Event()
        held: list[int] = []

        def answer(correlation_id: int) -> bytes | None:
            asked.set()
            held.append(correlation_id)
            return None if len(held) == 1 else good_answer(held[-1])

        async with Peer(answer) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test")
            impatient = asyncio.create_task(client.request(DescribeClusterRequest()))
            await asked.wait()
            impatient.cancel()
            assert (await client.request(DescribeClusterRequest())).cluster_id == "it"
            assert peer.connections == 1 and client.is_connected and client.unanswered == 0
            await client.close()

    asyncio.run(story())


def test_connection_stays_when_the_loop_itself_was_busy_for_longer_than_the_limit() -> None:
    async def story() -> None:
        async with Peer(good_answer) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test")
            await client.request(DescribeClusterRequest())
            asked = asyncio.create_task(client.request(DescribeClusterRequest(), timeout_ms=100))
            await asyncio.sleep(0)
            time.sleep(0.4)  # noqa: ASYNC251 - keeps the event loop busy, on which the peer also runs
            assert (await asked).cluster_id == "it"
            assert peer.connections == 1
            await client.close()

    asyncio.run(story())


def test_client_limits_its_requests_in_flight_and_sends_the_others_in_turn() -> None:
    async def story() -> None:
        open_, seen = asyncio.Event(), []

        def answer(correlation_id: int) -> bytes | None:
            seen.append(correlation_id)
            return good_answer(correlation_id) if open_.is_set() else None

        async with Peer(answer) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test", limits=ClientLimits(max_in_flight=3))
            asking = [asyncio.create_task(client.request(DescribeClusterRequest())) for _ in range(10)]
            await peer.until(lambda: len(seen) == 3)
            asking[5].cancel()
            open_.set()
            for each in tuple(seen):
                await peer.say(good_answer(each))
            answers = await asyncio.gather(*asking, return_exceptions=True)
            assert [getattr(each, "cluster_id", None) for each in answers] == ["it"] * 5 + [None] + ["it"] * 4
            assert seen == sorted(seen) and len(seen) == 9  # the cancelled request was never sent
            await client.close()

    asyncio.run(story())


def test_client_waits_before_it_connects_to_a_node_that_closed_its_connection() -> None:
    async def story() -> None:
        async with Peer(good_answer) as peer:
            limits = ClientLimits(reconnect_backoff_ms=300, reconnect_backoff_max_ms=300)
            client = NodeClient("127.0.0.1", peer.port, "test", limits=limits, randomness=random.Random(1))
            await client.request(DescribeClusterRequest())
            await peer.hang_up()
            await peer.until(lambda: not client.is_connected)
            began = asyncio.get_running_loop().time()
            await client.request(DescribeClusterRequest())
            assert asyncio.get_running_loop().time() - began > 0.2
            await client.close()

    asyncio.run(story())


def test_request_whose_answer_came_in_time_keeps_its_connection() -> None:
    async def story() -> None:
        async with Peer(good_answer) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test")
            for _ in range(3):
                async with asyncio.timeout(5):
                    await client.request(DescribeClusterRequest(), timeout_ms=5000)
            assert client.is_connected and peer.connections == 1
            await client.close()

    asyncio.run(story())


MALFORMED = {
    "cut off": lambda correlation_id: good_answer(correlation_id)[:-9],
    "only its correlation id": lambda correlation_id: correlation_id.to_bytes(4, "big"),
    "a negative length inside": lambda correlation_id: good_answer(correlation_id)[:11] + b"\x80" * 20,
    "noise": lambda correlation_id: correlation_id.to_bytes(4, "big") + b"\xff" * 50,
    "to another request": lambda correlation_id: good_answer(correlation_id + 7),
    "three bytes": lambda correlation_id: b"\0\0\0",
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_answer_costs_one_connection_and_one_line(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Peer(MALFORMED[kind]) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test")
            with pytest.raises(MalformedAnswerError, match=f"127.0.0.1:{peer.port} sent an answer"):
                await client.request(DescribeClusterRequest())
            await peer.until(lambda: peer.ended == 1)
            peer.answer = good_answer
            assert (await client.request(DescribeClusterRequest())).cluster_id == "it"
            assert peer.connections == 2
            await client.close()

    asyncio.run(story())
    assert len([each for each in caplog.records if each.name == "kafkacore.network"]) == 1


def refusal_with_unknown_error(correlation_id: int = 1) -> bytes:
    answer = ApiVersionsResponse(error_code=12345)
    return apis.encode_response(ApiKey.API_VERSIONS, 4, correlation_id, answer)


@pytest.mark.parametrize("versions", [b"\0\0\0\1\xff", b"\0\0\0\1", refusal_with_unknown_error()])
def test_node_whose_versions_cannot_be_read_is_left_and_tried_again(versions: bytes) -> None:
    async def story() -> None:
        async with Peer(good_answer, versions) as peer:
            client = NodeClient("127.0.0.1", peer.port, "test", limits=ClientLimits(reconnect_backoff_ms=1))
            with pytest.raises(Disconnected, match="cannot be reached"):
                await client.request(DescribeClusterRequest())
            await peer.until(lambda: peer.ended == 1)
            peer.versions = None
            assert (await client.request(DescribeClusterRequest())).cluster_id == "it"
            await client.close()

    asyncio.run(story())


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "\udcff", "no\0host"])
def test_host_name_that_cannot_be_one_is_a_node_that_cannot_be_reached(host: str) -> None:
    async def story() -> None:
        client = NodeClient(host, 9, "test")
        with pytest.raises(Disconnected, match="cannot be reached"):
            await client.request(DescribeClusterRequest())
        await client.close()

    asyncio.run(story())
