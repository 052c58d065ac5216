"""A cluster of whole nodes in a simulated world. The cluster object controls the time, the faults, the clients and the
observers."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from itertools import permutations, product
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeVar
from zlib import crc32

from kafkacore.config import BrokerConfig
from kafkacore.protocol.messages import Message
from kafkacore.simulation.client import SimulatedClient
from kafkacore.simulation.machine import Machine
from kafkacore.simulation.network import End, SimulatedNetwork
from kafkacore.simulation.node import SimulatedNode, State
from kafkacore.simulation.schedule import NS_OF_A_S, Schedule
from kafkacore.simulation.world import free_the_dead, seeded_uuid
from kafkacore.storage.format import FormatOptions, format_directories

T = TypeVar("T")

CLIENTS: Final = "PLAINTEXT"
CONTROLLERS: Final = "CONTROLLER"
CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
DIRECTORY: Final = "/data"
KEPT_EVENTS: Final = 1_000
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
# Configuration keys that a simulated node needs, and keys with small values that let a short run cover more cases.
CONFIGS: Final = MappingProxyType(
    {
        "metrics.port": "-1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.enable": "false",
    }
)


class Event(NamedTuple):
    """An event in the trace of a run. `at_ns` is the virtual time since the start of the run."""

    at_ns: int
    kind: str
    details: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.at_ns / NS_OF_A_S:12.6f} {self.kind:10} {' '.join(map(str, self.details))}"


class SimulationTimeout(TimeoutError):
    """The awaited condition did not become true within its limit of virtual time."""


class SimulatedNodes:
    """Nodes in a simulated world, with its time, network, clients and observers. Subclasses make the nodes, with ids
    from 1.

    The seed decides everything. The cluster calls each of `observers` with every Event as it happens.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.observers: list[Callable[[Event], None]] = []
        self.events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._hash = hashlib.blake2b(digest_size=16)
        self.schedule = Schedule(self.random_of("schedule"))
        self.network = SimulatedNetwork(self.schedule, self.random_of("network"), self._delivered)
        self._work_random = self.random_of("work").uniform
        self.nodes: dict[int, SimulatedNode] = {}
        self._clients: dict[str, SimulatedClient] = {}

    # --- nodes ---

    def __getitem__(self, node_id: int) -> SimulatedNode:
        return self.nodes[node_id]

    def __iter__(self) -> Iterator[SimulatedNode]:
        return iter(self.nodes.values())

    @property
    def controllers(self) -> list[SimulatedNode]:
        return [node for node in self if "controller" in node.roles]

    @property
    def brokers(self) -> list[SimulatedNode]:
        return [node for node in self if "broker" in node.roles]

    @property
    def active_controller(self) -> SimulatedNode | None:
        """Returns the node with the newest epoch among the nodes that regard themselves as the active controller, or
        None."""
        active = [node for node in self if node.is_active_controller]
        return max(active, key=lambda node: node.controller_epoch, default=None)

    def start(self, nodes: Iterable[SimulatedNode] | None = None) -> None:
        """Starts every node that is not running, without waiting."""
        for node in list(self if nodes is None else nodes):
            if not node.is_up:
                node.start()

    # --- the network ---

    def partition(self, *groups: Iterable[int]) -> None:
        """Cuts every link between nodes of different groups, in both directions."""
        for one, other in permutations(map(tuple, groups), 2):
            for source, target in product(one, other):
                self.cut(source, target)

    def cut(self, source: int, destination: int) -> None:
        """Cuts the link from `source` to `destination`. The other direction keeps working."""
        self.trace("cut", source, destination)
        self.network.cut(self[source].name, self[destination].name)

    def heal(self) -> None:
        """Restores every link."""
        self.trace("heal")
        self.network.heal()

    def address_of(self, node_id: int, listener: str | None = None) -> tuple[str, int]:
        node = self[node_id]
        chosen = listener or (CLIENTS if "broker" in node.roles else CONTROLLERS)
        return node.name, CLIENT_PORT if chosen == CLIENTS else CONTROLLER_PORT

    # --- clients ---

    def client(self, name: str = "client") -> SimulatedClient:
        """Returns the client with this name; the first call creates it."""
        made = self._clients.get(name)
        if made is None:
            made = SimulatedClient(self, self.new_machine(name), self.random_of(name, "client"))
            self._clients[name] = made
        return made

    def ask(self, node_id: int, request: Message, limit_s: float = 30.0, listener: str | None = None) -> Any:
        """Sends a request from the client named "client" and lets virtual time pass until the response arrives. Raises
        the same errors as `SimulatedClient.send`."""
        client = self.client()
        sent = client.send(node_id, request, listener=listener, timeout_ms=limit_s * 1000)
        return self.run(client, sent, limit_s + 1)

    def run(self, client: SimulatedClient, work: Coroutine[Any, Any, T], limit_s: float = 60.0) -> T:
        """Runs a client's coroutine to its end, and returns its result."""
        task = client.start(work)
        self.run_until(task.done, limit_s, f"the end of {task.get_coro()}")
        return task.result()

    # --- time ---

    @property
    def now_s(self) -> float:
        return self.schedule.now_ns / NS_OF_A_S

    def run_for(self, seconds: float) -> None:
        """Lets virtual time pass."""
        until_ns = self.schedule.now_ns + int(seconds * NS_OF_A_S)
        while self.schedule.now_ns < until_ns and self._step(until_ns):
            continue

    def run_until(self, happened: Callable[[], object], limit_s: float = 60.0, what: str = "") -> None:
        """Lets virtual time pass until `happened` returns a true value. When `limit_s` has passed, raises
        SimulationTimeout with the last events."""
        until_ns = self.schedule.now_ns + int(limit_s * NS_OF_A_S)
        while not happened():
            if self.schedule.now_ns >= until_ns or not self._step(until_ns):
                if happened():
                    return
                last = "\n".join(map(str, list(self.events)[-20:]))
                raise SimulationTimeout(
                    f"seed {self.seed}: {what or 'what was awaited'} did not happen within {limit_s:g} s. "
                    f"Nodes: {self._states()}. Last events:\n{last}"
                )

    def _step(self, until_ns: int) -> bool:
        return self.schedule.step(until_ns)

    def _states(self) -> str:
        return ", ".join(
            f"{node.name} {node.state.value}{' (active)' if node.is_active_controller else ''}"
            + (f" ({node.error})" if node.error is not None else "")
            for node in self
        )

    # --- the trace ---

    def trace(self, kind: str, *details: Any) -> None:
        """Adds an event to the trace. The text of its details must depend only on the seed."""
        event = Event(self.schedule.now_ns, kind, details)
        self._hash.update(repr(event).encode())
        self.events.append(event)
        for observer in self.observers:
            observer(event)

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def _delivered(self, end: End, data: bytes) -> None:
        self.trace("delivered", *end.here, *end.there, len(data), crc32(data))

    # --- seeds and machines ---

    def random_of(self, *names: object) -> Random:
        """Returns a new random generator, seeded with the cluster's seed and `names`. More draws from one generator do
        not change the draws from another."""
        return Random("/".join(map(str, (self.seed, *names))))

    def new_machine(self, name: str, rate: float = 1.0, offset_ms: int = 0) -> Machine:
        return Machine(self.schedule, name, rate, offset_ms, self.network, self._work_random)

    def close(self) -> None:
        """Ends every node immediately, and frees the memory that native code holds."""
        for node in self:
            if node.is_up:
                node.kill()
        for client in self._clients.values():
            client.close()
        self.schedule.clear()
        self._clients.clear()
        free_the_dead()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimulatedCluster(SimulatedNodes):
    """A cluster in KRaft mode. `controllers` and `brokers` count the nodes with one role, and `combined` counts the
    nodes with both. Ids count from 1: combined nodes come first, then controllers, then brokers. With `static`, the
    configuration lists the voters (kraft.version 0). Otherwise the metadata log holds the voters. `configs` sets
    configuration keys on every node. `of_node` maps a node id to the keys of that node alone.
    """

    def __init__(
        self,
        seed: int,
        *,
        controllers: int = 0,
        brokers: int = 0,
        combined: int = 0,
        static: bool = False,
        configs: Mapping[str, str] = _NOTHING,
        of_node: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        super().__init__(seed)
        ids = self.random_of("ids")
        self.cluster_id = str(seeded_uuid(ids))
        roles = ["broker,controller"] * combined + ["controller"] * controllers + ["broker"] * brokers
        voters = [number for number, each in enumerate(roles, 1) if "controller" in each]
        if not voters:
            raise ValueError("a cluster needs a node with the role of a controller")
        # The ids of the voters' metadata log directories.
        self.directories = directories = {number: seeded_uuid(ids) for number in voters}
        for number, role in enumerate(roles, 1):
            properties = self._properties(number, role, voters, static=static)
            config = BrokerConfig(properties | CONFIGS | dict(configs) | dict(of_node.get(number, _NOTHING)))
            node = self.nodes[number] = SimulatedNode(self, config)
            initial = ",".join(f"{each}@node-{each}:{CONTROLLER_PORT}:{directories[each]}" for each in voters)
            options = FormatOptions(
                self.cluster_id, initial_controllers=initial if not static and number in voters else None
            )
            machine = Machine(self.schedule, node.name)
            format_directories(
                config, options, machine.clock.wall_ms(), lambda line: None, node.disk, lambda: seeded_uuid(ids)
            )

    def _properties(self, number: int, role: str, voters: list[int], *, static: bool) -> dict[str, str]:
        listeners = []
        if "broker" in role:
            listeners.append(f"{CLIENTS}://node-{number}:{CLIENT_PORT}")
        if "controller" in role:
            listeners.append(f"{CONTROLLERS}://node-{number}:{CONTROLLER_PORT}")
        properties = {
            "process.roles": role,
            "node.id": str(number),
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{CONTROLLERS}:PLAINTEXT",
            "controller.listener.names": CONTROLLERS,
            "log.dirs": DIRECTORY,
        }
        if static:
            entries = (f"{each}@node-{each}:{CONTROLLER_PORT}" for each in voters)
            return properties | {"controller.quorum.voters": ",".join(entries)}
        servers = (f"node-{each}:{CONTROLLER_PORT}" for each in voters)
        return properties | {"controller.quorum.bootstrap.servers": ",".join(servers)}


def running(cluster: SimulatedNodes) -> bool:
    """Returns whether every node has started."""
    return all(node.state is State.RUNNING for node in cluster)
