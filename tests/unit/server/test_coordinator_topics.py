"""How a broker in ZooKeeper mode learns the number of partitions of the coordinators' topics."""

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any

from kafkacore.server.zookeeper.coordinator_topics import CoordinatorTopics
from kafkacore.storage.names import TRANSACTIONS_TOPIC
from kafkacore.zookeeper.operations import Code, Result


class Session:
    """A session whose first read fails, and whose later reads find a topic with three partitions."""

    def __init__(self) -> None:
        self.reads = 0

    async def sure(self, operations: list[Any]) -> list[Result]:
        self.reads += 1
        if self.reads == 1:
            return [Result(Code.SESSION_EXPIRED, None)] * len(operations)
        topic = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1],"1":[1],"2":[1]}}'
        return [Result(Code.OK, None), *[Result(Code.OK, (topic, None))] * (len(operations) - 1)]


class Loop:
    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        asyncio.ensure_future(work).add_done_callback(lambda task: done.set_result(task.result()))
        return done


def test_failed_read_is_repeated_before_the_next_change_of_an_image() -> None:
    async def story() -> None:
        session: Any = Session()
        loop: Any = Loop()
        topics = CoordinatorTopics(session, loop)
        await topics.read([TRANSACTIONS_TOPIC])
        assert topics.count(TRANSACTIONS_TOPIC) is None
        await topics.read([])
        assert topics.count(TRANSACTIONS_TOPIC) == 3
        await topics.read([])
        assert session.reads == 2, "nothing is unread"

    asyncio.run(story())
