"""A broker's way to the active controller: how many requests it forwards at once, and what it makes of answers."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, EnvelopeResponse, Message
from kafkacore.runtime.loops import LoopThread
from kafkacore.server import channel
from kafkacore.server.channel import FORWARDED_AT_ONCE, ActiveController, ControllerChannel
from kafkacore.server.metadata_replica import MetadataReplica

CALL = RequestContext(ApiKey.CREATE_TOPICS, 7, 0, None, "PLAINTEXT", "127.0.0.1")


class SlowController:
    """A controller that answers when a test opens it; it counts the requests under way."""

    def __init__(self) -> None:
        self.asked = self.under_way = self.most = 0
        self.busy = threading.Event()
        self.open = asyncio.Event()

    async def ask(self, call: RequestContext | None, request: Message, timeout_ms: int) -> Message:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.asked == FORWARDED_AT_ONCE:
            self.busy.set()
        await self.open.wait()
        self.under_way -= 1
        return CreateTopicsResponse()


async def forwarded(count: int, release: bool) -> tuple[SlowController, list[Any]]:
    loop = LoopThread("kc-loop-test")
    controller = SlowController()
    try:
        made = ControllerChannel(cast(ActiveController, controller), loop, 1000)
        asked = [asyncio.create_task(made.forward(CALL, CreateTopicsRequest())) for _ in range(count)]
        assert await asyncio.get_running_loop().run_in_executor(None, controller.busy.wait, 10)
        if release:
            loop.call(controller.open.set)
        return controller, await asyncio.gather(*asked, return_exceptions=True)
    finally:
        await asyncio.get_running_loop().run_in_executor(None, loop.stop)


def test_channel_forwards_a_few_requests_at_a_time_and_answers_all() -> None:
    controller, answers = asyncio.run(forwarded(FORWARDED_AT_ONCE * 10, release=True))
    assert controller.most == FORWARDED_AT_ONCE
    assert controller.asked == len(answers) and all(isinstance(each, CreateTopicsResponse) for each in answers)


def test_request_behind_others_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "FORWARD_TIMEOUT_MS", 50)
    controller, answers = asyncio.run(forwarded(FORWARDED_AT_ONCE + 1, release=False))
    assert controller.asked >= FORWARDED_AT_ONCE  # the last may take the place of a request that timed out before it
    assert all(isinstance(each, KafkaError) and each.code == ErrorCode.REQUEST_TIMED_OUT for each in answers)


class Elsewhere:
    """A replica whose leader is another node. That node answers envelopes with `answers`, in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.raft = SimpleNamespace(leader_elsewhere=("h", 9093))
        self.forwarded = self

    async def send(self, host: str, port: int, request: Message) -> Any:
        return self.answers.pop(0)


def enveloped(response: Message) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=apis.encode_response(CALL.api_key, CALL.api_version, 0, response))


def asked(*answers: Any) -> Any:
    """The answer to a client's CreateTopics when the active controller gives these."""

    async def ask() -> Any:
        active = ActiveController(cast(MetadataReplica, Elsewhere(*answers)), None, "CONTROLLER", 1)
        return await active.ask(CALL, CreateTopicsRequest(), 10_000)

    return asyncio.run(ask())


def topics(error: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t", error_code=error)])


def test_request_is_sent_again_when_its_answer_says_that_the_node_is_not_the_controller() -> None:
    answer = asked(enveloped(topics(ErrorCode.NOT_CONTROLLER)), enveloped(topics(ErrorCode.NONE)))
    assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\0\xff\xff\xff\xff\x7f"])
def test_envelope_that_holds_no_answer_fails_the_request_alone(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaError) as failed:
        asked(EnvelopeResponse(response_data=data))
    assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "an envelope that holds no answer" in caplog.text


def test_envelope_with_an_unknown_error_fails_the_request_alone() -> None:
    with pytest.raises(KafkaError) as failed:
        asked(EnvelopeResponse(error_code=9999))
    assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
