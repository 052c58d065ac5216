"""Auto-created topics: asked for once, whatever becomes of it."""

import asyncio
from typing import Any

from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import CreateTopicsResponse
from kafkacore.server import auto_topics
from kafkacore.server.auto_topics import AutoTopics


class Controller:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answer = asyncio.Event()
        self.fail = False

    async def create(self, request: Any) -> Any:
        self.asked.append([topic.name for topic in request.topics])
        await self.answer.wait()
        if self.fail:
            raise error_for(ErrorCode.NOT_CONTROLLER)
        return CreateTopicsResponse()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_topic_under_way_is_not_asked_for_again() -> None:
    async def story() -> None:
        controller = Controller()
        topics = AutoTopics(controller.create, 1, 1)
        topics.request(["a", "b"])
        topics.request(["b", "c"])
        await settle()
        assert controller.asked == [["a", "b"], ["c"]]
        controller.answer.set()
        await settle()
        topics.request(["a"])
        await settle()
        assert controller.asked[-1] == ["a"]

    asyncio.run(story())


def test_a_failure_lets_the_next_request_ask_again() -> None:
    async def story() -> None:
        controller = Controller()
        controller.fail = True
        controller.answer.set()
        topics = AutoTopics(controller.create, 1, 1)
        topics.request(["a"])
        await settle()
        topics.request(["a"])
        await settle()
        assert controller.asked == [["a"], ["a"]]

    asyncio.run(story())


def test_what_is_in_flight_is_bounded(monkeypatch: Any) -> None:
    async def story() -> None:
        monkeypatch.setattr(auto_topics, "MAX_IN_FLIGHT", 2)
        controller = Controller()
        topics = AutoTopics(controller.create, 1, 1)
        topics.request(["a", "b", "c"])
        await settle()
        assert controller.asked == [["a", "b"]]
        topics.request(["c"])
        await settle()
        assert controller.asked == [["a", "b"]]
        topics.close()

    asyncio.run(story())
