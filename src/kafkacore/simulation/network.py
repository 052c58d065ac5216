"""Connections between simulated machines. As with TCP, bytes arrive in order. They can be late or never arrive, and a
connection can be reset.

A lost packet is sent again, so a loss only causes a delay. No packet crosses a cut link. If the link is restored in
time, the packets arrive late. Otherwise the sender gives up and its connection breaks. A machine without power does not
reply at all. A machine whose process was killed replies with a reset.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, NamedTuple

from kafkacore.simulation.loop import SimulatedLoop
from kafkacore.simulation.machine import Machine
from kafkacore.simulation.schedule import NS_OF_A_S, Schedule

RETRANSMIT_S: Final = 0.2  # how long a sender waits before it sends a lost packet again; doubles with each attempt
RETRANSMIT_MAX_S: Final = 3.0
GIVE_UP_S: Final = 20.0  # how long a sender waits until its packets are confirmed; Linux waits 15 minutes
_FIRST_PORT: Final = 40_000

Accept = Callable[["End"], asyncio.Protocol]
Address = tuple[str, int]


class Quality(NamedTuple):
    """The quality of a link in one direction: the shortest and longest delay in s, and the share of packets that it
    loses."""

    least_s: float = 0.000_05
    most_s: float = 0.000_5
    loss: float = 0.0


class _Packet(NamedTuple):
    at_ns: int  # the arrival time of the packet if the link works
    data: bytes | None  # None stands for the end of the connection
    error: Exception | None


class End(asyncio.Transport):
    """One end of a connection: the asyncio transport of the protocol on this machine."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, here: Address, there: Address) -> None:
        super().__init__()
        self.loop = loop
        self.here, self.there = here, there
        self.machine = loop.machine
        self.peer: End
        self.protocol: asyncio.Protocol
        self._network = network
        self._outgoing: deque[_Packet] = deque()
        self._last_ns = 0
        self._silent_since_ns = -1
        self._retry_s = RETRANSMIT_S
        self._is_sending = False
        self.is_open = True
        self.stalls = 0  # the number of faults that hold back the bytes from this end

    # --- asyncio.Transport ---

    def write(self, data: Any) -> None:
        if data:
            # Report the bytes even if the connection is already broken. The node has answered, so the checkers count
            # the answer.
            self._network.on_write(self, bytes(data))
            if self.is_open:
                self._send(bytes(data), None)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Closes the connection. The peer receives everything that was written, and then the end of the stream."""
        self._end(None, tell_peer=True)

    def abort(self) -> None:
        self._end(None, tell_peer=True, error_there=ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def is_closing(self) -> bool:
        return not self.is_open

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.there, "sockname": self.here}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return sum(len(each.data or b"") for each in self._outgoing)

    # --- the wire ---

    def break_off(self, error: Exception | None) -> None:
        """Notifies this end that its connection is lost."""
        self._end(error, tell_peer=False)

    def _end(self, error: Exception | None, *, tell_peer: bool, error_there: Exception | None = None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._network.forget(self)
        if tell_peer:
            self._send(None, error_there)
        else:
            self._outgoing.clear()
        self.loop.call_soon(self.protocol.connection_lost, error)

    def _send(self, data: bytes | None, error: Exception | None) -> None:
        network = self._network
        self._last_ns = max(self._last_ns, network.schedule.now_ns + network.delay_ns(self.here[0], self.there[0]))
        self._outgoing.append(_Packet(self._last_ns, data, error))
        if not self._is_sending:
            self._is_sending = True
            network.at(self._last_ns, self._arrive)

    def _arrive(self) -> None:
        network, peer = self._network, self.peer
        now_ns = network.schedule.now_ns
        is_cut = self.stalls or network.is_cut(self.here[0], self.there[0])
        if self._outgoing and (is_cut or network.is_silent(peer.machine)):
            self._wait_for_heal(now_ns)
            return
        self._silent_since_ns, self._retry_s = -1, RETRANSMIT_S
        while self._outgoing and self._outgoing[0].at_ns <= now_ns:
            packet = self._outgoing.popleft()
            if not peer.machine.is_alive:
                # The receiver's process has ended, and with it the socket, so the sender gets a reset.
                self.break_off(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            elif packet.data is None:
                # The peer first reads the bytes that arrived before the end of the stream.
                peer.loop.call_soon(peer.break_off, packet.error)
            elif peer.is_open:
                network.delivered(self, packet.data)
                network.on_arrival(self, packet.data)
                peer.loop.call_soon(peer.receive, packet.data)
        self._is_sending = bool(self._outgoing)
        if self._outgoing:
            network.at(self._outgoing[0].at_ns, self._arrive)

    def receive(self, data: bytes) -> None:
        if self.is_open:
            self.protocol.data_received(data)

    def _wait_for_heal(self, now_ns: int) -> None:
        if self._silent_since_ns < 0:
            self._silent_since_ns = now_ns
        if now_ns - self._silent_since_ns > GIVE_UP_S * NS_OF_A_S:
            self._is_sending = False
            self.break_off(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            return
        self._network.at(now_ns + int(self._retry_s * NS_OF_A_S), self._arrive)
        self._retry_s = min(self._retry_s * 2, RETRANSMIT_MAX_S)


def _nobody_listens(source: End, data: bytes) -> None:
    pass


class SimulatedNetwork:
    """Connects machines. A machine's name is also its host name. Each direction of a link has its own quality. `cut`
    stops the traffic and `heal` restores it."""

    def __init__(self, schedule: Schedule, random: Random, delivered: Callable[[End, bytes], None]) -> None:
        self.schedule = schedule
        self.delivered = delivered
        # The network calls these two functions for all bytes: `on_write` when an end writes the bytes, and `on_arrival`
        # when they arrive. Both get the end that sent the bytes.
        self.on_write: Callable[[End, bytes], None] = _nobody_listens
        self.on_arrival: Callable[[End, bytes], None] = _nobody_listens
        self.quality = Quality()  # the quality of links that have no quality of their own
        self._random = random
        self._qualities: dict[tuple[str, str], Quality] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._silent: dict[str, None] = {}
        self._listening: dict[Address, tuple[SimulatedLoop, Accept]] = {}
        self._ends: dict[End, None] = {}
        self._next_port = _FIRST_PORT
        # Packets travel on this loop, which keeps running when the machines at the ends of a link stop.
        self._wire = Machine(schedule, "network").loop("wire")

    # --- faults ---

    def cut(self, source: str, destination: str) -> None:
        """Cuts the link from one machine to another. The other direction keeps working."""
        self._cut[source, destination] = None

    def heal(self, source: str | None = None, destination: str | None = None) -> None:
        """Restores one direction, or, without names, all links."""
        if source is None or destination is None:
            self._cut.clear()
        else:
            self._cut.pop((source, destination), None)

    def set_quality(self, source: str, destination: str, quality: Quality | None) -> None:
        """Sets the quality of a link. None restores the default quality of all links."""
        if quality is None:
            self._qualities.pop((source, destination), None)
        else:
            self._qualities[source, destination] = quality

    def reset(self, one: str, other: str) -> int:
        """Breaks every connection between two machines. Returns the number of broken connections."""
        ends = [end for end in self._ends if {end.here[0], end.there[0]} == {one, other}]
        for end in ends:
            end.break_off(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return len(ends)

    def stall(self, name: str, is_hit: Callable[[], bool] = lambda: True) -> tuple[int, Callable[[], None]]:
        """Holds back all bytes on those current connections of a machine that `is_hit` selects, as when one of several
        network paths fails. New connections work. Returns the number of stalled connections, and the function that ends
        the stall."""
        own = [end for end in self._ends if end.here[0] == name]
        ends = [each for end in own if is_hit() for each in (end, end.peer)]
        for end in ends:
            end.stalls += 1

        def go_on() -> None:
            for end in ends:
                end.stalls -= 1

        return len(ends) // 2, go_on

    def is_cut(self, source: str, destination: str) -> bool:
        return (source, destination) in self._cut

    def is_silent(self, machine: Machine) -> bool:
        """Returns whether a machine is off, so that packets to it are not even answered with a reset."""
        return not machine.is_alive and machine.name in self._silent

    def machine_died(self, machine: Machine, *, silent: bool) -> None:
        """Ends the machine's connections. Call this before the machine's loops end. With `silent`, the machine has lost
        its power. Otherwise its operating system resets the connections."""
        if silent:
            self._silent[machine.name] = None
        for address in [each for each, (loop, _) in self._listening.items() if loop.machine is machine]:
            del self._listening[address]
        for end in [each for each in self._ends if each.machine is machine]:
            if silent:
                end.is_open = False
                del self._ends[end]
            else:
                end.abort()

    def machine_is_back(self, name: str) -> None:
        """Notes that the operating system of a machine runs again. From now on, it resets the connections that peers
        opened before the power cut."""
        self._silent.pop(name, None)

    # --- connections ---

    def listen(self, loop: SimulatedLoop, address: Address, accept: Accept) -> Address:
        """Accepts connections on the loop until `unlisten` is called. Port 0 selects a free port. Raises OSError if the
        port is in use."""
        host, port = address
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        if (host, port) in self._listening:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        self._listening[host, port] = loop, accept
        return host, port

    def unlisten(self, address: Address) -> None:
        self._listening.pop(address, None)

    async def connect(
        self, loop: SimulatedLoop, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[End, asyncio.Protocol]:
        """Connects as `loop.create_connection` does. Raises ConnectionRefusedError. Waits while the link is cut, as TCP
        does."""
        source = loop.machine.name
        retry_s = RETRANSMIT_S
        while True:
            await asyncio.sleep(self.delay_ns(source, host) / NS_OF_A_S)
            if not (self.is_cut(source, host) or self.is_cut(host, source) or host in self._silent):
                break
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, RETRANSMIT_MAX_S)
        found = self._listening.get((host, port))
        if found is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses the connection")
        there_loop, accept = found
        port_here, self._next_port = self._next_port, self._next_port + 1
        here, there = (source, port_here), (host, port)
        near, far = End(self, loop, here, there), End(self, there_loop, there, here)
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        far.protocol = accept(far)
        there_loop.call_soon(far.protocol.connection_made, far)
        near.protocol = protocol = factory()
        protocol.connection_made(near)
        return near, protocol

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)

    def delay_ns(self, source: str, destination: str) -> int:
        """Returns how long a packet takes, including the delay caused by losses."""
        quality = self._qualities.get((source, destination), self.quality)
        delay_s = self._random.uniform(quality.least_s, quality.most_s)
        retry_s = RETRANSMIT_S
        while quality.loss and self._random.random() < quality.loss:
            delay_s += retry_s
            retry_s = min(retry_s * 2, RETRANSMIT_MAX_S)
        return int(delay_s * NS_OF_A_S)

    def at(self, when_ns: int, work: Callable[[], None]) -> None:
        """Runs `work` at `when_ns`, as a callback of the network and not of a machine."""
        self.schedule.at(when_ns, asyncio.Handle(work, (), self._wire), self._wire)
