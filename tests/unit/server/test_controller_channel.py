"""A broker's connection to the active controller: how many requests it forwards at a time, and how it handles the
answers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from controller_links import CALL, Links, active_controller, enveloped, topics
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError
from kafkacore.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, EnvelopeResponse, Message
from kafkacore.runtime.loops import LoopThread
from kafkacore.server import channel
from kafkacore.server.channel import FORWARDS_AT_ONCE, ActiveController, ControllerChannel
from kafkacore.server.lanes import FORWARDS


class SlowController:
    """A stub of a controller that does not answer until the test opens it. It counts the requests in flight."""

    def __init__(self, most: int) -> None:
        self.asked = self.under_way = self.most = 0
        self.enough = most
        self.busy = threading.Event()
        self.open = asyncio.Event()

    async def live(self, request: Message) -> Message:
        raise AssertionError("a forward is no heartbeat")

    async def ask(self, lane: str, call: RequestContext | None, request: Message, timeout_ms: int) -> Message:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.asked == self.enough:
            self.busy.set()
        await self.open.wait()
        self.under_way -= 1
        return CreateTopicsResponse()


async def forwarded(count: int, release: bool) -> tuple[SlowController, list[Any]]:
    loop = LoopThread("kc-loop-test")
    controller = SlowController(min(count, FORWARDS_AT_ONCE))
    try:
        made = ControllerChannel(cast(ActiveController, controller), loop, 1000)
        asked = [asyncio.create_task(made.forward(CALL, CreateTopicsRequest())) for _ in range(count)]
        assert await asyncio.get_running_loop().run_in_executor(None, controller.busy.wait, 10)
        if release:
            loop.call(controller.open.set)
        return controller, await asyncio.gather(*asked, return_exceptions=True)
    finally:
        await asyncio.get_running_loop().run_in_executor(None, loop.stop)


def test_channel_limits_its_requests_in_flight_and_answers_all() -> None:
    controller, answers = asyncio.run(forwarded(FORWARDS_AT_ONCE * 3, release=True))
    assert controller.most == FORWARDS_AT_ONCE
    assert controller.asked == len(answers) and all(isinstance(each, CreateTopicsResponse) for each in answers)


def test_request_behind_others_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "FORWARD_TIMEOUT_MS", 200)
    controller, answers = asyncio.run(forwarded(FORWARDS_AT_ONCE + 1, release=False))
    assert controller.asked >= FORWARDS_AT_ONCE  # the last request is also sent if an earlier request times out first
    assert all(isinstance(each, KafkaError) and each.code == ErrorCode.REQUEST_TIMED_OUT for each in answers)


def test_request_is_refused_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_WAITING_FORWARDS", 5)
    _, answers = asyncio.run(forwarded(5, release=True))
    assert not any(isinstance(each, Exception) for each in answers)

    async def crowded() -> None:
        made = ControllerChannel(cast(ActiveController, SlowController(0)), cast(LoopThread, None), 1000)
        made._waiting = 5
        with pytest.raises(KafkaError, match="5 requests already wait") as refused:
            await made.forward(CALL, CreateTopicsRequest())
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(crowded())


def asked(*answers: Any) -> Any:
    """Sends a client's CreateTopics, which the active controller answers with `answers`. Returns the client's
    response."""

    async def ask() -> Any:
        links = Links(answers)
        links.leader = ("h", 9093)
        return await active_controller(links).ask(FORWARDS, CALL, CreateTopicsRequest(), 10_000)

    return asyncio.run(ask())


def test_request_is_sent_again_when_its_answer_says_that_the_node_is_not_the_controller() -> None:
    answer = asked(enveloped(topics(ErrorCode.NOT_CONTROLLER)), enveloped(topics(ErrorCode.NONE)))
    assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]


def test_request_is_sent_again_when_the_envelope_says_that_the_node_is_not_the_controller() -> None:
    answer = asked(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), enveloped(topics(ErrorCode.NONE)))
    assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\0\xff\xff\xff\xff\x7f"])
def test_envelope_that_holds_no_answer_fails_the_request_alone(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaError) as failed:
        asked(EnvelopeResponse(response_data=data))
    assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "h:9093 sent an envelope that holds no answer" in caplog.text


@pytest.mark.parametrize("error", [9999, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST])
def test_refused_envelope_is_an_unknown_error_for_the_client(error: int, caplog: pytest.LogCaptureFixture) -> None:
    """This is the behaviour of Apache Kafka's ForwardingManager, because the client's request was not at fault."""
    with pytest.raises(KafkaError) as failed:
        asked(EnvelopeResponse(error_code=error))
    assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "h:9093 refused an envelope" in caplog.text


def test_controller_that_knows_no_envelopes_is_an_unknown_error_for_the_client() -> None:
    with pytest.raises(KafkaError) as failed:
        asked(UnsupportedVersionError("h:9093 does not serve ENVELOPE"))
    assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_client_s_connection_closes_when_the_controller_does_not_support_the_version() -> None:
    with pytest.raises(ProtocolError, match="does not support version 7 of CREATE_TOPICS"):
        asked(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))


def test_broker_has_the_controller_s_versions_when_an_answer_to_a_client_arrives() -> None:
    """The versions are passed on before the answer, so that a client whose connection closes finds them."""

    async def forward() -> list[Any]:
        loop = LoopThread("kc-loop-test")
        links = Links([EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)])
        links.leader, links.versions = ("h", 9093), {ApiKey.CREATE_TOPICS: (2, 5)}
        told: list[Any] = []
        try:
            made = ControllerChannel(active_controller(links), loop, 1000)
            made.watch_versions(told.append)
            with pytest.raises(ProtocolError):
                await made.forward(CALL, CreateTopicsRequest())
            return told
        finally:
            await asyncio.get_running_loop().run_in_executor(None, loop.stop)

    assert asyncio.run(forward()) == [None, {ApiKey.CREATE_TOPICS: (2, 5)}]
