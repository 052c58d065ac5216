"""How a broker coordinates groups: its clock, the requests that wait until `__consumer_offsets` exists, and the
requests that it can answer without a group's state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
)
from kafkacore.runtime.slices import finish_now
from kafkacore.server import groups
from kafkacore.server.coordinator_keys import java_hash
from kafkacore.server.groups import Groups
from kafkacore.server.handlers.broker import describe_groups, find_coordinator, heartbeat

CONFIG = BrokerConfig(
    {
        "process.roles": "broker",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@127.0.0.1:1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": "/nowhere",
    }
)
START_MS = 1_700_000_000_000
CALL: Any = SimpleNamespace(api_version=6, client_id="c", client_host="127.0.0.1", listener="PLAINTEXT")


class Clock:
    """A clock that stands still. A test changes the wall time with `step_ms`."""

    def __init__(self) -> None:
        self.step_ms = 0

    def monotonic_ns(self) -> int:
        return 5_000_000

    def wall_ms(self) -> int:
        return START_MS + self.step_ms


class Topics:
    """A stub of the automatic creation of topics. It grants each request immediately, but the topic never appears."""

    def request(self, names: list[str]) -> None:
        """Grants the request."""

    async def asked(self, name: str) -> bool:
        return True


IMAGE: Any = SimpleNamespace(topic=lambda name: None)


def made(clock: Any = None, image: Any = IMAGE, count: int | None = None) -> Groups:
    world: Any = None
    return Groups(
        CONFIG, world, lambda: image, lambda name: count, Topics(), world, clock or Clock(), world, world  # type: ignore[arg-type]
    )  # fmt: skip


def in_a_loop(story: Callable[[], Any]) -> None:
    async def whole() -> None:
        await story()

    asyncio.run(whole())


def test_heartbeat_uses_the_time_of_the_shards_when_the_wall_clock_is_set() -> None:
    async def story() -> None:
        clock, heard = Clock(), []
        part = made(clock)

        class Shard:
            def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
                heard.append(now_ms)
                return HeartbeatResponse()

        part.shard_of = lambda group_id: Shard()  # type: ignore[method-assign, assignment, return-value]
        broker: Any = SimpleNamespace(groups=part)
        for step_ms in (0, 3_600_000, -3_600_000):
            clock.step_ms = step_ms
            heartbeat.handle(broker, CALL, HeartbeatRequest(group_id="g", member_id="m"))
        assert heard == [START_MS] * 3

    in_a_loop(story)


def test_group_keeps_its_partition_when_the_metadata_lacks_the_last_partition_of_the_topic() -> None:
    """In ZooKeeper mode, the metadata leaves out a partition that has no state yet."""
    leaders = dict.fromkeys(range(49), 2)
    image: Any = SimpleNamespace(
        topic=lambda name: leaders,
        partition=lambda topic, index: SimpleNamespace(leader=topic[index]) if index in topic else None,
    )

    async def story() -> None:
        part = made(image=image, count=50)
        groups = {java_hash(group) % 50: group for group in map(str, range(200))}
        assert all(part.partition_of(group) == index for index, group in groups.items())
        assert [part.coordinator_of(groups[index]) for index in (48, 49)] == [2, -1]

    in_a_loop(story)


def test_waiter_for_the_topic_is_dropped_when_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        part = made()
        await part.create_topic()
        assert not part._awaiting
        waits = asyncio.create_task(part.create_topic())
        await asyncio.sleep(0.001)
        waits.cancel()
        await asyncio.wait([waits])
        assert not part._awaiting

    monkeypatch.setattr(groups, "CREATION_PATIENCE_S", 0.01)
    in_a_loop(story)


def test_group_that_is_named_twice_is_described_once() -> None:
    part: Any = SimpleNamespace(shard_of=lambda group_id: Shard)
    described: list[str] = []

    class Shard:
        @staticmethod
        def describe_group(call: Any, group_id: str) -> describe_groups.Group:
            described.append(group_id)
            return describe_groups.Group(group_id=group_id)

    broker: Any = SimpleNamespace(groups=part)
    answer = finish_now(describe_groups.handle(broker, CALL, DescribeGroupsRequest(groups=["b", "a", "b", "b", "a"])))
    assert [each.group_id for each in answer.groups] == described == ["b", "a"]


def test_key_named_twice_is_answered_once() -> None:
    broker: Any = SimpleNamespace(image=IMAGE, transactions_refused=False, count_partitions=lambda name: None)
    asked = FindCoordinatorRequest(key_type=find_coordinator.TRANSACTION, coordinator_keys=["b", "a", "b"])
    answer: Any = finish_now(find_coordinator.handle(broker, CALL, asked))
    assert [each.key for each in answer.coordinators] == ["b", "a"]
    assert {each.error_code for each in answer.coordinators} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def one_by_one(text: str) -> int:
    """Computes the hash as Java's documentation defines it."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


@pytest.mark.parametrize("length", [*range(20), 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 8193, 32_767])
def test_long_ids_are_hashed_as_short_ones(length: int) -> None:
    for text in (
        "\uffff" * length,
        "g" * length,
        "\xe4\xff" * length,
        "\ud800" * length,
        "\U0001f600z" * (length // 2),
    ):
        assert java_hash(text) == one_by_one(text)
