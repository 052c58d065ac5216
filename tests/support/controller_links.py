"""A stub of a node's connections to the controllers. It records each request to the active controller and returns the
answers that a test provides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from kafkacore.config import BrokerConfig
from kafkacore.network.client import Disconnected
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey, NodeVersions
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import CreateTopicsResponse, EnvelopeResponse, Message
from kafkacore.server.channel import ActiveController
from kafkacore.server.metadata_replica import MetadataReplica

CALL = RequestContext(ApiKey.CREATE_TOPICS, 7, 0, None, "PLAINTEXT", "127.0.0.1")
Address = tuple[str, int]


class Links:
    """A stub of the replica and of all its lanes (groups of connections to the controllers). Each request gets the next
    item of `answers`. When no item is left, a request waits until the test ends its connection."""

    def __init__(self, answers: Iterable[Any] = ()) -> None:
        self.answers = list(answers)
        self.raft = self
        self.sent: list[tuple[Address, Any]] = []
        self.ended: list[Address] = []
        self.leader: Address | None = None
        self.versions: NodeVersions | None = None  # of each node that has answered
        self._moved: list[Callable[[], None]] = []
        self._waiting: list[tuple[Address, asyncio.Future[Any]]] = []
        self.changed = asyncio.Event()

    @property
    def lanes(self) -> Links:
        return self

    def __getitem__(self, lane: str) -> Links:
        return self

    # --- the replica ---

    @property
    def leader_elsewhere(self) -> Address | None:
        return self.leader

    def watch_leader(self, moved: Callable[[], None]) -> None:
        self._moved.append(moved)

    def elect(self, leader: Address | None) -> None:
        self.leader = leader
        for moved in self._moved:
            moved()

    # --- a lane ---

    async def send(self, host: str, port: int, request: Message) -> Any:
        self.sent.append(((host, port), request))
        self.changed.set()
        if not self.answers:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(((host, port), future))
            return await future
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def learned_versions(self, host: str, port: int) -> NodeVersions | None:
        return self.versions

    def disconnect(self, host: str, port: int) -> None:
        self.ended.append((host, port))
        for where, future in self._waiting:
            if where == (host, port) and not future.done():
                future.set_exception(Disconnected("the test ended the connection"))

    def answer_all(self, answer: Any) -> None:
        """Answers all requests that wait."""
        for _, future in self._waiting:
            if not future.done():
                future.set_result(answer)

    async def until_sent(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.sent) < count:
                self.changed.clear()
                await self.changed.wait()


def active_controller(links: Links, local: Any = None, **keys: str) -> ActiveController:
    config = BrokerConfig(
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "h:9093",
            "controller.quorum.retry.backoff.ms": "1",
        }
        | {key.replace("_", "."): value for key, value in keys.items()}
    )
    return ActiveController(cast(MetadataReplica, links), local, "CONTROLLER", config)


def enveloped(response: Message) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=apis.encode_response(CALL.api_key, CALL.api_version, 0, response))


def topics(error: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t", error_code=error)])
