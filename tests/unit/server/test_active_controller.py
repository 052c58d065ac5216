"""Every caller that waits for the active controller learns of it at once, however many wait."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kafkacore.protocol.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkacore.server.channel import ActiveController

NEVER_MS = 60_000
LIMIT_S = 10


class Unreachable:
    """The other controllers. When `lost` is set, each request of the first caller is lost; the other callers do not
    know."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.both_asked = asyncio.Event()
        self.asked = 0
        self.raft = self.own_requests = self.forwarded = self

    @property
    def leader_elsewhere(self) -> tuple[str, int] | None:
        self.asked += 1
        if self.asked == 2:
            self.both_asked.set()
        return ("127.0.0.1", 1) if self.asked == 1 else None

    async def send(self, host: str, port: int, request: object) -> object:
        await self.lost.wait()
        raise OSError("nobody is there")


async def ask_twice() -> list[Any]:
    async def answered(call: object, request: object) -> object:
        return BrokerHeartbeatResponse()

    others = Unreachable()
    local = SimpleNamespace(ask=answered)
    active = ActiveController(cast(Any, others), cast(Any, local), "CONTROLLER", NEVER_MS)
    asking = [asyncio.create_task(active.ask(None, BrokerHeartbeatRequest(), NEVER_MS)) for _ in range(2)]
    await others.both_asked.wait()
    active.on_leading(1)
    # The second caller is answered while the first still waits for its lost request.
    first_answer = await asking[1]
    others.lost.set()
    return [await asking[0], first_answer]


def test_request_is_repeated_when_a_controller_is_elected() -> None:
    answers = asyncio.run(asyncio.wait_for(ask_twice(), LIMIT_S))
    assert [answer.error_code for answer in answers] == [0, 0]
