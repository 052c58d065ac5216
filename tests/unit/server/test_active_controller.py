"""Requests that a broker sends again to a new active controller: immediately if that is safe, otherwise before they
time out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller_links import CALL, Links, active_controller, enveloped, topics
from kafkacore.network.client import Disconnected
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterConfigsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
)
from kafkacore.server.lanes import FORWARDS, LIFE

LIMIT_S = 10
LIMIT_MS = LIMIT_S * 1000
OLD, NEW = ("old", 1), ("new", 2)
ALTER = CALL._replace(api_key=ApiKey.ALTER_CONFIGS, api_version=2)


def run(story: Any) -> Any:
    return asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_requests_wait_for_an_election_and_learn_of_it_at_once() -> None:
    async def story() -> None:
        async def answered(call: object, request: object) -> object:
            return BrokerHeartbeatResponse()

        links = Links()
        active = active_controller(links, SimpleNamespace(ask=answered))
        asking = [asyncio.create_task(active.ask(LIFE, None, BrokerHeartbeatRequest(), LIMIT_MS)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not links.sent
        active.on_leading(1)
        assert [each.error_code for each in await asyncio.gather(*asking)] == [0, 0, 0]
        assert not links.sent

    run(story)


def test_heartbeat_that_waits_for_a_lost_controller_goes_to_the_new_one_at_once() -> None:
    async def story() -> None:
        links = Links()
        links.elect(OLD)
        active = active_controller(links, controller_quorum_request_timeout_ms="60000")
        links.elect(OLD)
        asking = asyncio.create_task(active.live(BrokerHeartbeatRequest()))
        await links.until_sent(1)
        links.elect(None)
        for _ in range(10):
            await asyncio.sleep(0)
        # A new election alone does not show that the old controller has not committed the request.
        assert len(links.sent) == 1
        links.answers = [BrokerHeartbeatResponse()]
        links.elect(NEW)
        assert (await asking).error_code == 0
        assert [where for where, _ in links.sent] == [OLD, NEW]
        assert links.ended == []

    run(story)


def test_request_that_must_not_be_repeated_waits_until_the_old_connection_ends() -> None:
    """The old controller may have committed the request. Like Apache Kafka, we repeat the request when the connection
    ends."""

    async def story() -> None:
        links = Links()
        active = active_controller(links, controller_quorum_request_timeout_ms="100")
        links.elect(OLD)
        asking = asyncio.create_task(active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS))
        repeated = asyncio.create_task(active.ask(FORWARDS, ALTER, AlterConfigsRequest(), LIMIT_MS))
        await links.until_sent(2)
        links.elect(NEW)
        await links.until_sent(3)
        assert [where for where, _ in links.sent] == [OLD, OLD, NEW]
        links.answers = [enveloped(topics(ErrorCode.NONE))]
        assert (await asking).topics[0].error_code == ErrorCode.NONE
        assert OLD in links.ended and NEW not in links.ended
        assert [where for where, _ in links.sent] == [OLD, OLD, NEW, NEW]
        repeated.cancel()

    run(story)


def test_connections_stay_when_the_old_controller_is_active_again_in_time() -> None:
    async def story() -> None:
        links = Links()
        limit_ms = 20
        active = active_controller(links, controller_quorum_request_timeout_ms=str(limit_ms))
        links.elect(OLD)
        links.elect(NEW)
        links.elect(OLD)
        asking = asyncio.create_task(active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS))
        await asyncio.sleep(limit_ms / 1000)  # begins after the timer of the limit, so also ends after that timer
        assert OLD not in links.ended
        asking.cancel()

    run(story)


@pytest.mark.parametrize("lost", [Disconnected("gone"), TimeoutError()])
def test_request_is_repeated_when_its_connection_breaks(lost: Exception) -> None:
    async def story() -> None:
        links = Links([lost, lost, BrokerHeartbeatResponse()])
        active = active_controller(links)
        links.elect(OLD)
        assert (await active.live(BrokerHeartbeatRequest())).error_code == 0
        assert len(links.sent) == 3

    run(story)


def test_request_times_out_when_no_controller_answers() -> None:
    async def story() -> None:
        links = Links()
        active = active_controller(links)
        with pytest.raises(TimeoutError):
            await active.ask(LIFE, None, BrokerHeartbeatRequest(), 20)
        links.elect(OLD)
        with pytest.raises(TimeoutError):
            await active.ask(LIFE, None, BrokerHeartbeatRequest(), 20)
        assert len(links.sent) == 1

    run(story)


# --- requests that are forwarded to the controller in the same process ---


class Deciding:
    """A stub of a controller that decides over several iterations of the event loop, and then waits for a commit."""

    def __init__(self) -> None:
        self.deciding = self.most = self.decided = 0
        self.committed = asyncio.Event()

    async def ask(self, call: object, request: object) -> object:
        self.deciding += 1
        self.most = max(self.most, self.deciding)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            self.deciding -= 1
        self.decided += 1
        await self.committed.wait()
        return topics(ErrorCode.NONE)


def test_slow_commit_holds_no_other_forwarded_request_up() -> None:
    async def story() -> None:
        local = Deciding()
        active = active_controller(Links(), local)
        active.on_leading(1)
        asking = [asyncio.create_task(active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS)) for _ in range(20)]
        while local.decided < 20:
            assert local.most <= 1  # the controller's own listener has at most one decision in flight
            await asyncio.sleep(0)
        local.committed.set()
        assert len(await asyncio.gather(*asking)) == 20

    run(story)


def test_cancelled_request_lets_the_next_one_decide() -> None:
    async def story() -> None:
        local = Deciding()
        local.committed.set()
        active = active_controller(Links(), local)
        active.on_leading(1)
        asking = [asyncio.create_task(active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS)) for _ in range(9)]
        for turn, cancelled in ((1, 0), (2, 1), (4, 5)):
            for _ in range(turn):
                await asyncio.sleep(0)
            asking[cancelled].cancel()
        done = await asyncio.gather(*asking, return_exceptions=True)
        assert sum(isinstance(each, asyncio.CancelledError) for each in done) == 3
        assert local.most == 1
        again = await active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS)
        assert again.topics[0].error_code == ErrorCode.NONE

    run(story)


def test_failed_decision_lets_the_next_one_decide() -> None:
    async def story() -> None:
        async def fails(call: object, request: object) -> object:
            await asyncio.sleep(0)
            raise ValueError("no decision")

        active = active_controller(Links(), SimpleNamespace(ask=fails))
        active.on_leading(1)
        for _ in range(2):
            asking = [active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS) for _ in range(3)]
            failed = await asyncio.gather(*asking, return_exceptions=True)
            assert [str(each) for each in failed] == ["no decision"] * 3

    run(story)


def test_versions_of_the_controller_follow_its_answers_and_elections() -> None:
    async def story() -> None:
        links = Links([BrokerHeartbeatResponse()] * 4)
        active = active_controller(links, SimpleNamespace())
        told: list[Any] = []
        active.watch_versions(told.append)
        older, newer = {ApiKey.CREATE_TOPICS: (2, 5)}, {ApiKey.CREATE_TOPICS: (2, 7)}
        links.elect(OLD)
        for versions in (older, dict(older), None):
            links.versions = versions
            await active.live(BrokerHeartbeatRequest())
        links.elect(None)
        assert told == [None, older], "a closed connection or an election changes nothing"
        links.elect(NEW)
        links.versions = newer
        await active.live(BrokerHeartbeatRequest())
        assert told == [None, older, newer]
        active.on_leading(3)
        assert told == [None, older, newer, None], "the active controller is in this process"

    run(story)


def test_late_answer_of_a_former_controller_tells_no_versions() -> None:
    async def story() -> None:
        links = Links()
        active = active_controller(links, SimpleNamespace())
        told: list[Any] = []
        active.watch_versions(told.append)
        links.elect(OLD)
        asking = asyncio.create_task(active.ask(FORWARDS, CALL, CreateTopicsRequest(), LIMIT_MS))
        await links.until_sent(1)
        links.versions = {ApiKey.CREATE_TOPICS: (2, 5)}
        active.on_leading(3)
        links.answer_all(enveloped(topics(ErrorCode.NONE)))
        await asking
        assert told == [None]

    run(story)
