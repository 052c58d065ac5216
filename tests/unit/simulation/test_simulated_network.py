"""The simulated network behaves like TCP: it preserves the order of bytes, it can drop everything silently, and it can
reset or refuse connections. The event loops run in virtual time.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kafkacore.simulation.loop import SimulatedLoop
from kafkacore.simulation.machine import Machine
from kafkacore.simulation.network import GIVE_UP_S, End, Quality, SimulatedNetwork
from kafkacore.simulation.schedule import NS_OF_A_S, Schedule

PORT = 9092


class Peer(asyncio.Protocol):
    """One end of a connection. Stores the received bytes, and the reason why the connection ended."""

    def __init__(self) -> None:
        self.received = b""
        self.ended: list[Exception | None] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.append(error)


class Wire:
    """A connection between the client "a" and the server "b"."""

    def __init__(self, seed: int = 1) -> None:
        self.schedule = Schedule(Random(seed))
        self.network = SimulatedNetwork(self.schedule, Random(seed), lambda end, data: None)
        self.a = Machine(self.schedule, "a", network=self.network)
        self.b = Machine(self.schedule, "b", network=self.network)
        self.server = Peer()
        self.client = Peer()
        self.network.listen(self.b.loop("server"), ("b", PORT), self._accept)

    def _accept(self, end: End) -> Peer:
        return self.server

    def run(self, seconds: float) -> None:
        until_ns = self.schedule.now_ns + int(seconds * NS_OF_A_S)
        while self.schedule.step(until_ns):
            continue

    def connect(self, port: int = PORT) -> asyncio.Task[object]:
        loop = self.a.loop("client")

        async def connecting() -> object:
            return await loop.create_connection(lambda: self.client, "b", port)

        task = loop.create_task(connecting())
        self.run(1)
        return task


@pytest.fixture
def wire() -> Wire:
    made = Wire()
    made.connect().result()
    return made


def test_bytes_arrive_in_order_when_packets_are_late_and_lost(wire: Wire) -> None:
    wire.network.quality = Quality(0.001, 0.1, loss=0.3)
    sent = [b"%d," % number for number in range(200)]
    for part in sent:
        wire.client.transport.write(part)
        wire.run(0.001)
    assert wire.server.received != b"".join(sent)
    wire.run(30)
    assert wire.server.received == b"".join(sent)


def test_cut_link_is_silent_and_delivers_after_the_heal(wire: Wire) -> None:
    wire.network.cut("a", "b")
    wire.client.transport.write(b"x")
    wire.server.transport.write(b"y")
    wire.run(5)
    assert (wire.server.received, wire.client.received) == (b"", b"y")  # only one direction is cut
    wire.network.heal("a", "b")
    wire.run(5)
    assert wire.server.received == b"x"
    assert wire.client.ended == wire.server.ended == []


def test_sender_gives_up_when_nobody_confirms_for_long(wire: Wire) -> None:
    wire.network.cut("a", "b")
    wire.client.transport.write(b"x")
    wire.run(GIVE_UP_S + 5)
    assert [type(error) for error in wire.client.ended] == [TimeoutError]
    wire.network.heal()
    wire.run(30)
    assert wire.server.received == b""


def test_peer_learns_of_a_killed_process_and_not_of_lost_power() -> None:
    for silent, ended in ((False, [ConnectionResetError]), (True, [])):
        wire = Wire()
        wire.connect().result()
        wire.network.machine_died(wire.b, silent=silent)
        wire.b.kill()
        wire.run(5)
        assert [type(error) for error in wire.client.ended] == ended
        wire.client.transport.write(b"x")
        wire.run(5)
        assert [type(error) for error in wire.client.ended] == ended
        wire.network.machine_is_back("b")  # from now on, the machine answers that it does not know the connection
        wire.run(5)
        assert [type(error) for error in wire.client.ended] == [ConnectionResetError]


def test_connection_is_refused_where_nobody_listens(wire: Wire) -> None:
    assert isinstance(wire.connect(PORT + 1).exception(), ConnectionRefusedError)


def test_connection_waits_while_the_link_is_cut() -> None:
    wire = Wire()
    wire.network.cut("b", "a")
    task = wire.connect()
    assert not task.done()
    wire.network.heal()
    wire.run(5)
    assert task.exception() is None


def test_paused_machine_gets_everything_when_it_goes_on(wire: Wire) -> None:
    wire.b.pause()
    wire.client.transport.write(b"x")
    wire.run(60)
    assert wire.server.received == b""
    wire.b.resume()
    wire.run(1)
    assert wire.server.received == b"x"


def test_timer_follows_the_rate_of_its_machines_clock() -> None:
    schedule = Schedule(Random(1))
    seen: dict[str, float] = {}
    for name, rate in (("slow", 0.5), ("right", 1.0), ("fast", 2.0)):
        machine = Machine(schedule, name, rate)
        machine.loop("main").call_later(10, lambda name=name: seen.setdefault(name, schedule.now_ns / NS_OF_A_S))
    while schedule.step(60 * NS_OF_A_S):
        continue
    assert seen == {name: pytest.approx(due, abs=0.001) for name, due in (("fast", 5), ("right", 10), ("slow", 20))}


def test_seed_orders_the_loops_and_keeps_the_order_within_each_loop() -> None:
    def order(seed: int) -> list[str]:
        schedule, seen = Schedule(Random(seed)), list[str]()
        loops: list[SimulatedLoop] = [Machine(schedule, name).loop("main") for name in "abcdef"]
        for number in "12":
            for loop in loops:
                loop.call_soon(seen.append, loop.machine.name + number)
        while schedule.step(NS_OF_A_S):
            continue
        return seen

    orders = [order(seed) for seed in range(10)]
    assert orders == [order(seed) for seed in range(10)]
    assert len(set(map(tuple, orders))) > 5
    for seen in orders:
        assert all(seen.index(f"{name}1") < seen.index(f"{name}2") for name in "abcdef")


def test_machine_that_is_off_runs_nothing_more() -> None:
    schedule, seen = Schedule(Random(1)), list[str]()
    machine = Machine(schedule, "a")
    loop = machine.loop("main")

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("woke")
        finally:
            loop.call_soon(seen.append, "said goodbye")

    loop.create_task(work())
    loop.call_later(2, seen.append, "timer")
    schedule.step(NS_OF_A_S)
    machine.kill()
    while schedule.step(10 * NS_OF_A_S):
        continue
    assert seen == []
