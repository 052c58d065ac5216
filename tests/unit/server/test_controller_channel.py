"""A broker's way to the active controller: how many clients' requests it passes on at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, Message
from kafkacore.runtime.loops import LoopThread
from kafkacore.server import channel
from kafkacore.server.channel import FORWARDED_AT_ONCE, ActiveController, ControllerChannel

CALL = RequestContext(ApiKey.CREATE_TOPICS, 7, 0, None, "PLAINTEXT", "127.0.0.1")


class SlowController:
    """Answers when it is let; counts who it has before it."""

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


def test_a_flood_of_forwarded_requests_comes_to_the_controller_a_few_at_a_time_and_all_are_answered() -> None:
    controller, answers = asyncio.run(forwarded(FORWARDED_AT_ONCE * 10, release=True))
    assert controller.most == FORWARDED_AT_ONCE
    assert controller.asked == len(answers) and all(isinstance(each, CreateTopicsResponse) for each in answers)


def test_a_request_that_waits_behind_others_is_told_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "FORWARD_TIMEOUT_MS", 50)
    controller, answers = asyncio.run(forwarded(FORWARDED_AT_ONCE + 1, release=False))
    assert controller.asked >= FORWARDED_AT_ONCE  # the last may take the place of one whose time was up before its own
    assert all(isinstance(each, KafkaError) and each.code == ErrorCode.REQUEST_TIMED_OUT for each in answers)
