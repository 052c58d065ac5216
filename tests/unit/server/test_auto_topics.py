"""A broker requests the automatic creation of a topic once, whatever the result."""

import asyncio
from typing import Any

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import CreateTopicsResponse
from kafkacore.server import auto_topics
from kafkacore.server.auto_topics import AutoTopics

CONFIG = BrokerConfig(
    {
        "process.roles": "broker",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@127.0.0.1:1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": "/nowhere",
        "num.partitions": "3",
        "offsets.topic.num.partitions": "7",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.segment.bytes": "1000000",
    }
)


class Controller:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.topics: list[Any] = []
        self.answer = asyncio.Event()
        self.fail = False
        self.refusal = ErrorCode.NONE

    async def create(self, request: Any) -> Any:
        self.asked.append([topic.name for topic in request.topics])
        self.topics += request.topics
        await self.answer.wait()
        if self.fail:
            raise error_for(ErrorCode.NOT_CONTROLLER)
        result = CreateTopicsResponse.CreatableTopicResult
        told = {"error_code": self.refusal, "error_message": "no"}
        return CreateTopicsResponse(topics=[result(name=topic.name, **told) for topic in request.topics])


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_topic_is_not_requested_again_while_under_way() -> None:
    async def story() -> None:
        controller = Controller()
        topics = AutoTopics(controller.create, CONFIG)
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


@pytest.mark.parametrize(
    ("name", "key"),
    [("__consumer_offsets", "offsets.topic.replication.factor"), ("orders", "default.replication.factor")],
)
def test_warning_names_the_key_when_a_topic_wants_more_brokers_than_there_are(name: str, key: str, caplog: Any) -> None:
    async def story() -> None:
        controller = Controller()
        controller.refusal = ErrorCode.INVALID_REPLICATION_FACTOR
        controller.answer.set()
        topics = AutoTopics(controller.create, CONFIG)
        topics.request([name])
        assert not await topics.asked(name)

    asyncio.run(story())
    [told] = [record.getMessage() for record in caplog.records]
    assert f"topic {name} was not created: no (set {key} to" in told


def test_topic_is_requested_again_after_a_failure() -> None:
    async def story() -> None:
        controller = Controller()
        controller.fail = True
        controller.answer.set()
        topics = AutoTopics(controller.create, CONFIG)
        topics.request(["a"])
        await settle()
        topics.request(["a"])
        await settle()
        assert controller.asked == [["a"], ["a"]]

    asyncio.run(story())


def test_topics_in_flight_are_bounded(monkeypatch: Any) -> None:
    async def story() -> None:
        monkeypatch.setattr(auto_topics, "MAX_IN_FLIGHT", 2)
        controller = Controller()
        topics = AutoTopics(controller.create, CONFIG)
        topics.request(["a", "b", "c"])
        await settle()
        assert controller.asked == [["a", "b"]]
        topics.request(["c"])
        await settle()
        assert controller.asked == [["a", "b"]]
        topics.close()

    asyncio.run(story())


def test_offsets_topic_is_created_with_kafkas_settings() -> None:
    async def story() -> None:
        controller = Controller()
        topics = AutoTopics(controller.create, CONFIG)
        topics.request(["__consumer_offsets", "mine"])
        asked = asyncio.create_task(topics.asked("__consumer_offsets"))
        await settle()
        assert not asked.done()
        controller.answer.set()
        assert await asked
        offsets, mine = controller.topics
        assert (offsets.num_partitions, offsets.replication_factor) == (7, 2)
        assert {each.name: each.value for each in offsets.configs} == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1000000",
        }
        assert (mine.num_partitions, mine.replication_factor, mine.configs) == (3, 1, [])

    asyncio.run(story())


def test_waiter_learns_that_its_topic_was_refused() -> None:
    async def story() -> None:
        controller = Controller()
        controller.fail = True
        topics = AutoTopics(controller.create, CONFIG)
        topics.request(["__consumer_offsets"])
        controller.answer.set()
        assert not await topics.asked("__consumer_offsets")
        assert not await topics.asked("never requested")

    asyncio.run(story())


def test_closed_broker_creates_no_topic_and_warns_of_none(caplog: Any) -> None:
    async def story() -> None:
        controller = Controller()
        topics = AutoTopics(controller.create, CONFIG)
        topics.request(["a"])
        waiting = asyncio.create_task(topics.asked("a"))
        await settle()
        topics.close()
        assert not await waiting
        topics.request(["b"])
        await settle()
        assert controller.asked == [["a"]]
        assert not await topics.asked("b")

    asyncio.run(story())
    assert caplog.messages == []


def test_topics_of_foreign_coordinators_are_not_created_when_a_client_asks_for_them() -> None:
    async def story() -> None:
        controller = Controller()
        topics = AutoTopics(controller.create, CONFIG)
        topics.request(["__transaction_state", "__share_group_state", "mine"])
        await settle()
        assert controller.asked == [["mine"]]
        topics.close()

    asyncio.run(story())
