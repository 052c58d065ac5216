"""A node sends requests of different kinds to another node on separate connections (lanes). Both the number of lanes
and the number of nodes are limited."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kafkacore.network import lanes
from kafkacore.network.client import ClientLimits, Disconnected
from kafkacore.network.lanes import Lane, LaneLimits, Lanes
from kafkacore.protocol.messages import DescribeClusterRequest
from node_peer import Peer, good_answer


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


def lane(connections: int = 1, **limits: Any) -> Lane:
    return Lane("test", LaneLimits(ClientLimits(**limits), connections), random.Random(1))


def test_request_does_not_wait_behind_requests_in_another_lane() -> None:
    async def story() -> None:
        async with Peer(lambda _: None) as peer:
            made = Lanes("test", random.Random(1), slow=LaneLimits(ClientLimits()), quick=LaneLimits(ClientLimits()))
            waits = asyncio.create_task(made["slow"].send("127.0.0.1", peer.port, DescribeClusterRequest()))
            await peer.until(lambda: peer.asked == 1)
            peer.answer = good_answer
            assert (await made["quick"].send("127.0.0.1", peer.port, DescribeClusterRequest())).cluster_id == "it"
            assert peer.connections == 2 and not waits.done()
            await made.close()
            with pytest.raises(Disconnected):
                await waits
            with pytest.raises(Disconnected, match="stopping"):
                await made["quick"].send("127.0.0.1", peer.port, DescribeClusterRequest())

    run(story)


def test_lane_makes_a_further_connection_only_while_the_others_are_busy() -> None:
    async def story() -> None:
        async with Peer(good_answer) as peer:
            made = lane(connections=3)
            for _ in range(5):
                await made.send("127.0.0.1", peer.port, DescribeClusterRequest())
            assert peer.connections == 1
            peer.answer = lambda _: None
            waiting = [
                asyncio.create_task(made.send("127.0.0.1", peer.port, DescribeClusterRequest())) for _ in range(9)
            ]
            await peer.until(lambda: peer.asked == 5 + 9)
            assert peer.connections == 3
            made.disconnect("127.0.0.1", peer.port)
            failed = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(each, Disconnected) for each in failed)
            peer.answer = good_answer
            assert (await made.send("127.0.0.1", peer.port, DescribeClusterRequest())).cluster_id == "it"
            await made.close()

    run(story)


def test_lane_ends_the_connection_to_the_node_it_has_not_asked_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_NODES", 2)

    async def story() -> None:
        async with Peer(lambda _: None) as busy, Peer(good_answer) as one, Peer(good_answer) as other:
            made = lane()
            waits = asyncio.create_task(made.send("127.0.0.1", busy.port, DescribeClusterRequest()))
            await busy.until(lambda: busy.asked == 1)
            for _ in range(3):
                for peer in (one, other):
                    assert (await made.send("127.0.0.1", peer.port, DescribeClusterRequest())).cluster_id == "it"
            assert not waits.done() and busy.connections == 1
            assert one.connections == other.connections == 3
            await made.close()
            with pytest.raises(Disconnected):
                await waits

    run(story)


def test_requests_that_wait_for_a_connection_fail_when_the_lane_lets_the_node_go() -> None:
    async def story() -> None:
        async with Peer(good_answer, versions=b"") as peer:  # this peer never answers ApiVersions
            peer.silent = True
            made = lane()
            waits = asyncio.create_task(made.send("127.0.0.1", peer.port, DescribeClusterRequest()))
            await peer.until(lambda: peer.connections == 1)
            made.disconnect("127.0.0.1", peer.port)
            with pytest.raises(Disconnected, match="no longer connects"):
                await waits
            await made.close()

    run(story)
