"""A cluster with sockets and files in this process. Its nodes share the threads of the process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from kafkacore._fast.world.fault_disk import FaultDisk
from kafkacore.config import BrokerConfig
from kafkacore.network.client import NodeClient
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.ports import free_ports
from kafkacore.runtime.temporary_directory import TemporaryDirectory
from kafkacore.runtime.world import World
from kafkacore.server.node import Node
from kafkacore.storage.format import FormatOptions, format_directories
from kafkacore.testing.client import CLIENT_ID, Client
from kafkacore.testing.links import Links, NativeConnection

T = TypeVar("T")
HOST: Final = "127.0.0.1"
MEMORY_DIRECTORY: Final = "/dev/shm"  # noqa: S108 - directories with random names are made in it
DIRECTORY_PREFIX: Final = "kafkacore-cluster-"
_LOOK_S: Final = 0.002
# A test waits for elections and sessions, so these times are short. They are not shorter, because six nodes may share
# one process and two cores.
CONFIGS: Final = {
    "metrics.port": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "300",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
}


class LinkedWorld(World):
    """The real world of one node. A test can cut the node's connections to other nodes, and slow its disk down."""

    def __init__(self, node_id: int, links: Links, disk: FaultDisk) -> None:
        super().__init__(disk.environment())
        self.own_threads = False  # this world uses the real clock, so it can share the threads of the process
        self._node_id, self._links = node_id, links

    async def connect(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Any:
        return await self._links.connect(self._node_id, factory, host, port)

    def watch_link(self, address: tuple[str, int], connection: NativeConnection) -> Callable[[], None]:
        return self._links.watch(self._node_id, address, connection)


class RealNode:
    """A node with sockets and files: its configuration, and methods to start and stop it."""

    def __init__(self, config: BrokerConfig, links: Links) -> None:
        self.config, self.links = config, links
        self.disk = FaultDisk()
        self.node: Node | None = None
        self.failure: BaseException | None = None
        self.state = "off"

    def start(self) -> None:
        if self.node is not None:
            raise RuntimeError(f"node {self.config.node_id} is {self.state}")
        node = Node(self.config, world=LinkedWorld(self.config.node_id, self.links, self.disk))
        node.on_fault = self._failed
        self.failure, self.state, self.node = None, "starting", node
        try:
            node.start()
        except BaseException as error:
            self.state, self.node, self.failure = "failed", None, error
            raise
        self.state = "running"

    def stop(self) -> None:
        self._end(Node.stop)

    def kill(self) -> None:
        self._end(Node.kill)

    def _end(self, how: Callable[[Node], None]) -> None:
        node = self.node
        if node is None:
            return
        self.state = "stopping"
        try:
            how(node)
        finally:
            self.state, self.node = "off", None

    def _failed(self, error: BaseException) -> None:
        self.failure, self.state = error, "failed"


class RealCluster:
    """The ClusterBackend for nodes with sockets and files."""

    def __init__(
        self,
        roles: Mapping[int, tuple[str, ...]],
        configs: Mapping[str, str],
        of_node: Mapping[int, Mapping[str, str]],
        *,
        static: bool,
    ) -> None:
        self.roles = roles
        in_memory = os.access(MEMORY_DIRECTORY, os.W_OK | os.X_OK)
        self._directory = TemporaryDirectory(DIRECTORY_PREFIX, MEMORY_DIRECTORY if in_memory else None)
        listeners = [(node_id, role) for node_id, each in roles.items() for role in each]
        ports = dict(zip(listeners, free_ports(len(listeners), HOST), strict=True))
        self._addresses = {listener: (HOST, port) for listener, port in ports.items()}
        self.links = Links({address: node_id for (node_id, _), address in self._addresses.items()})
        self._loop = LoopThread("kc-testing")
        self._clients: dict[int, NodeClient] = {}
        self._closed = False
        self.nodes: dict[int, RealNode] = {}
        try:
            self._format(configs, of_node, static=static)
        except BaseException:
            self.close()
            raise

    def _format(self, configs: Mapping[str, str], of_node: Mapping[int, Mapping[str, str]], *, static: bool) -> None:
        voters = {node_id: Uuid.random() for node_id, roles in self.roles.items() if "controller" in roles}
        places = {node_id: "{}:{}".format(*self._addresses[node_id, "controller"]) for node_id in voters}
        quorum = {"controller.quorum.bootstrap.servers": ",".join(places.values())}
        if static:
            quorum = {"controller.quorum.voters": ",".join(f"{each}@{place}" for each, place in places.items())}
        initial = ",".join(f"{each}@{place}:{voters[each]}" for each, place in places.items())
        cluster_id = str(Uuid.random())
        for node_id, roles in self.roles.items():
            named = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
            listeners = (f"{named[role]}://{HOST}:{self._addresses[node_id, role][1]}" for role in roles)
            properties = {
                "process.roles": ",".join(roles),
                "node.id": str(node_id),
                "listeners": ",".join(listeners),
                "controller.listener.names": "CONTROLLER",
                "log.dirs": os.path.join(self._directory.logs, f"node-{node_id}"),
                **quorum,
                **CONFIGS,
                **configs,
                **of_node.get(node_id, {}),
            }
            config = BrokerConfig(properties)
            given = initial if not static and "controller" in roles else None
            options = FormatOptions(cluster_id, initial_controllers=given)
            format_directories(config, options, time.time_ns() // 1_000_000, say=lambda text: None)
            self.nodes[node_id] = RealNode(config, self.links)

    # --- nodes ---

    def bootstrap(self, node_id: int) -> str:
        if "broker" not in self.roles[node_id]:
            raise ValueError(f"node {node_id} is not a broker")
        return "{}:{}".format(*self._addresses[node_id, "broker"])

    def state(self, node_id: int) -> str:
        return self.nodes[node_id].state

    def server(self, node_id: int) -> Node | None:
        return self.nodes[node_id].node

    def failure(self, node_id: int) -> BaseException | None:
        return self.nodes[node_id].failure

    def start(self, node_ids: list[int]) -> None:
        # A broker's start waits for the controllers, and a controller's start may wait for other controllers, so all
        # nodes start at the same time.
        with ThreadPoolExecutor(len(node_ids), "kc-testing-start") as threads:
            list(threads.map(lambda node_id: self.nodes[node_id].start(), node_ids))

    def stop(self, node_id: int) -> None:
        self.nodes[node_id].stop()

    def kill(self, node_id: int) -> None:
        self.links.isolate(node_id)  # a node that is killed notifies no other node
        try:
            self.nodes[node_id].kill()
        finally:
            self.links.reset(node_id)

    def pause(self, node_id: int) -> None:
        raise ValueError(
            f"node {node_id} shares its process with the test and cannot be paused: cut its links, or give the "
            "cluster a seed"
        )

    resume = pause

    def cut(self, source: int, target: int) -> None:
        self.links.cut(source, target)

    def heal(self) -> None:
        self.links.mend()

    def slow_disk(self, node_id: int, ms: float) -> None:
        self.nodes[node_id].disk.slow_down(int(ms * 1000))

    def passes(self, source: int, target: int) -> bool:
        return self.links.passes(source, target)

    # --- time ---

    def wait_until(self, condition: Callable[[], T], limit_s: float) -> T | None:
        deadline = time.monotonic() + limit_s
        while not (found := condition()):
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_S)
        return found

    def run_for(self, seconds: float) -> None:
        time.sleep(seconds)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # --- requests ---

    def ask(self, node_id: int, request: Any, version: int | None, limit_s: float) -> Any:
        return self._loop.run(self._client(node_id).request(request, version, limit_s * 1000), limit_s + 1)

    def run(self, node_id: int, work: Callable[[Client], Coroutine[Any, Any, T]], limit_s: float) -> T:
        return self._loop.run(work(Client(self._client(node_id))), limit_s)

    def _client(self, node_id: int) -> NodeClient:
        client = self._clients.get(node_id)
        if client is None:
            role = "broker" if "broker" in self.roles[node_id] else "controller"
            client = self._clients[node_id] = NodeClient(*self._addresses[node_id, role], CLIENT_ID)
        return client

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.links.mend()
        try:
            with ThreadPoolExecutor(max(len(self.nodes), 1), "kc-testing-stop") as threads:
                # The nodes can be killed, because the files of a closing cluster are not needed, and no other node has
                # to take over.
                list(threads.map(lambda node: node.kill(), self.nodes.values()))
        finally:
            for client in self._clients.values():
                self._loop.run(client.close())
            self._loop.stop()
            self._directory.close()
