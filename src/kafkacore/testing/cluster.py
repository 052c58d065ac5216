"""`Cluster`: controllers and brokers inside a test's process, in real time or in a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import permutations, product
from types import MappingProxyType
from typing import Any, Final, Self

from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import CreateTopicsRequest
from kafkacore.server.node import Node
from kafkacore.testing.cluster_backend import ClusterBackend
from kafkacore.testing.logs import LogRecord
from kafkacore.testing.lookup import as_text
from kafkacore.testing.real_cluster import RealCluster
from kafkacore.testing.simulated_cluster import SimulatedBackend

Topics = Iterable[str] | Mapping[str, int]
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
LIMIT_S: Final = 30.0
MOST_SLOW_MS: Final = 1_000


class ClusterNode:
    """One node of a cluster: its id and roles, its life, and its view of the cluster."""

    def __init__(self, cluster: Cluster, backend: ClusterBackend, node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self._backend = backend

    @property
    def roles(self) -> tuple[str, ...]:
        """ "broker", "controller" or both."""
        return self._backend.roles[self.node_id]

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker, for clients. Raises ValueError when no client outside can reach it."""
        return self._backend.bootstrap(self.node_id)

    @property
    def state(self) -> str:
        """off, starting, running, paused, stopping or failed."""
        return self._backend.state(self.node_id)

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def server(self) -> Node:
        """The node itself. Raises RuntimeError while it does not run."""
        server = self._backend.server(self.node_id)
        if server is None:
            raise RuntimeError(f"node {self.node_id} is {self.state}")
        return server

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the node."""
        return self._backend.failure(self.node_id)

    @property
    def is_active_controller(self) -> bool:
        """Whether this node believes that it is the active controller, however old that belief is."""
        server = self._backend.server(self.node_id)
        controller = None if server is None else server.controller_server
        return self.is_running and controller is not None and controller.quorum.active

    @property
    def image(self) -> MetadataImage:
        """The committed metadata that this node has applied. Raises RuntimeError while it does not run."""
        server = self.server
        if "broker" in self.roles:
            return server.broker.context.image
        assert server.controller_server is not None
        return server.controller_server.quorum.image

    @property
    def topics(self) -> dict[str, int]:
        """Partitions by topic name, as this node knows them."""
        return {topic.name: len(topic.partition_rows) for topic in self.image.topics()}

    def kill(self) -> None:
        """Ends the node as SIGKILL does: it notifies no other node, and its next start recovers its logs."""
        self._backend.kill(self.node_id)

    def stop(self) -> None:
        """Shuts the node down cleanly."""
        self._backend.stop(self.node_id)
        self.cluster.wait_until(lambda: self.state == "off", f"node {self.node_id} off")

    def start(self) -> None:
        """Starts the node again, with its files and on its ports, and waits until it is ready."""
        self._backend.start([self.node_id])
        self.cluster.wait_until(lambda: self.is_running, f"node {self.node_id} running")

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Pauses the node, as SIGSTOP does: it keeps its connections and does nothing. Only in a simulated cluster."""
        self._backend.pause(self.node_id)

    def resume(self) -> None:
        """Continues the node, as SIGCONT does."""
        self._backend.resume(self.node_id)

    def ask(self, request: Any, version: int | None = None, limit_s: float = LIMIT_S) -> Any:
        """The node's answer to any request of `kafkacore.protocol.messages`. Raises OSError, TimeoutError,
        KafkaError."""
        return self._backend.ask(self.node_id, request, version, limit_s)

    def __repr__(self) -> str:
        return f"<node {self.node_id}, {' and '.join(self.roles)}, {self.state}>"


class Controllers:
    """The controllers of a cluster, by node id."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def active(self) -> ClusterNode:
        """The active controller, in the newest epoch; waits for one. Raises TimeoutError."""
        found: ClusterNode = self._cluster.wait_until(lambda: self.current, "an active controller")
        return found

    @property
    def current(self) -> ClusterNode | None:
        """The active controller of the newest epoch, if there is one now."""
        found = [node for node in self if node.is_active_controller]
        return max(found, key=lambda node: node.server.replica.raft.epoch, default=None)  # type: ignore[union-attr]

    @property
    def standbys(self) -> list[ClusterNode]:
        """The running controllers that are not the active one."""
        active = self.active
        return [node for node in self if node.is_running and node is not active]

    def __iter__(self) -> Iterator[ClusterNode]:
        return (node for node in self._cluster if "controller" in node.roles)

    def __getitem__(self, node_id: int) -> ClusterNode:
        return self._cluster[node_id]


class Cluster:
    """`Cluster(controllers=3, brokers=3)`: nodes with one role each. `Cluster(nodes=3)`: nodes with both roles.
    `Cluster()` is one node. Node ids count from 1: nodes with both roles, then controllers, then brokers.

    Without a `seed` the nodes have sockets and files, and time is real. With a seed the cluster is simulated: one
    thread, virtual time, and the same run for the same seed. The clients of a simulated cluster are `produce`,
    `consume` and `ask`.

    `topics` are names, or partitions by name. `configs` are keys of every node, `of_node` keys of one.
    `static` voters stand in the configuration (kraft.version 0); otherwise the metadata log holds the voters (KIP-853).

    Raises ValueError, OSError, and ConfigError for a value or topic that Kafka refuses.
    """

    def __init__(
        self,
        nodes: int = 0,
        *,
        controllers: int = 0,
        brokers: int = 0,
        topics: Topics = (),
        configs: Mapping[str, object] = _NOTHING,
        of_node: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
        static: bool = False,
        seed: int | None = None,
    ) -> None:
        if not (nodes or controllers or brokers):
            nodes = 1
        if min(nodes, controllers, brokers) < 0 or not nodes + controllers:
            raise ValueError(
                f"Cluster(nodes={nodes}, controllers={controllers}, brokers={brokers}) has no controller: give the "
                "number of nodes with both roles, or of controllers"
            )
        roles = [("broker", "controller")] * nodes + [("controller",)] * controllers + [("broker",)] * brokers
        by_id = dict(enumerate(roles, 1))
        given = {key: as_text(value) for key, value in configs.items()}
        of_each = {node_id: {key: as_text(value) for key, value in keys.items()} for node_id, keys in of_node.items()}
        if unknown := of_each.keys() - by_id.keys():
            raise ValueError(f"of_node names nodes that do not exist: {sorted(unknown)}; there are 1 to {len(by_id)}")
        self._backend = _backend(by_id, given, of_each, static=static, seed=seed)
        self.nodes = {node_id: ClusterNode(self, self._backend, node_id) for node_id in by_id}
        self.controller = Controllers(self)
        try:
            self._backend.start(list(by_id))
            self.wait_until_ready()
            self.create_topics(topics)
        except BaseException:
            self.close()
            raise

    # --- nodes ---

    def __getitem__(self, node_id: int) -> ClusterNode:
        return self.nodes[node_id]

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(self.nodes.values())

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def brokers(self) -> dict[int, ClusterNode]:
        return {node.node_id: node for node in self if "broker" in node.roles}

    @property
    def bootstrap(self) -> str:
        """The bootstrap.servers for clients. Raises ValueError in a simulated cluster, which has no sockets."""
        return ",".join(node.bootstrap for node in self.brokers.values())

    @property
    def reachable(self) -> list[ClusterNode]:
        """The running nodes whose links with the active controller are not cut."""
        active = self.controller.active.node_id
        passes = self._backend.passes
        return [
            node for node in self if node.is_running and passes(active, node.node_id) and passes(node.node_id, active)
        ]

    # --- faults ---

    def cut(self, source: int | Iterable[int], target: int | Iterable[int]) -> None:
        """Cuts the link between two nodes in one direction, or the links between two groups of nodes in both:
        `cut([1], [2, 3])`. Messages wait until `heal`, and nodes notice nothing."""
        if isinstance(source, int) and isinstance(target, int):
            self._backend.cut(self[source].node_id, self[target].node_id)
        else:
            self.partition(*([each] if isinstance(each, int) else each for each in (source, target)))

    def partition(self, *groups: Iterable[int]) -> None:
        """Cuts every link between nodes of different groups, in both directions. Clients reach every node."""
        for one, other in permutations(map(tuple, groups), 2):
            for source, target in product(one, other):
                self.cut(source, target)

    def slow_disk(self, node_id: int, ms: float) -> None:
        """Lets every disk operation on the node's logs take this much longer, up to a second; 0 ends that. `heal`
        leaves it as it is, and so does a restart of the node."""
        if not 0 <= ms < MOST_SLOW_MS:
            raise ValueError(f"a disk operation takes from 0 to below {MOST_SLOW_MS} ms longer, not {ms}")
        self._backend.slow_disk(self[node_id].node_id, ms)

    def heal(self) -> None:
        """Mends every link."""
        self._backend.heal()

    # --- waits ---

    def wait_until(self, condition: Callable[[], Any], what: str = "the condition", limit_s: float = LIMIT_S) -> Any:
        """Returns the first true value of `condition()`. Raises TimeoutError, which shows the state of each node."""
        found = self._backend.wait_until(condition, limit_s)
        if not found:
            raise TimeoutError(f"{what} did not happen within {limit_s:g} s. Now: {self.describe()}")
        return found

    def wait_until_ready(self, limit_s: float = LIMIT_S) -> None:
        """Waits until there is an active controller, every running node has its metadata, and every running broker may
        serve clients."""
        self.wait_until(self._is_ready, "every node ready", limit_s)

    def _is_ready(self) -> bool:
        for node in self:
            if node.failure is not None:
                raise node.failure
        running = [node for node in self if node.state != "off"]
        active = self.controller.current
        if active is None or not all(node.is_running for node in running):
            return False
        image = active.image
        return all(
            node.image.offset >= image.offset and ("broker" not in node.roles or image.is_active(node.node_id))
            for node in running
        )

    def run_for(self, seconds: float) -> None:
        """Lets time pass: virtual time in a simulated cluster."""
        self._backend.run_for(seconds)

    def describe(self) -> str:
        """The state of each node, in one line."""
        return ", ".join(
            f"{node.node_id} {node.state}{' (active controller)' if node.is_active_controller else ''}"
            + (f" ({node.failure})" if node.failure is not None else "")
            for node in self
        )

    # --- topics and records ---

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, object] = _NOTHING,
        limit_s: float = LIMIT_S,
    ) -> str:
        """Creates a topic, waits until every running node that the active controller can reach knows it, and returns
        its name. Raises KafkaError, TimeoutError."""
        keys = [
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=as_text(each)) for key, each in configs.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=keys
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(limit_s * 1000))
        broker = self.wait_until(
            lambda: next((node for node in self.reachable if "broker" in node.roles), None),
            "a broker that the active controller reaches", limit_s,
        )  # fmt: skip
        answer = broker.ask(request, limit_s=limit_s).topics[0]
        if answer.error_code:
            raise error_for(ErrorCode(answer.error_code), f"{name}: {answer.error_message}")
        self.wait_until(
            lambda: all(name in node.topics for node in self.reachable), f"topic {name} on every node", limit_s
        )
        return name

    def create_topics(self, topics: Topics) -> None:
        """Creates several topics: names, or partitions by name."""
        for name, partitions in topics.items() if isinstance(topics, Mapping) else ((name, 1) for name in topics):
            self.create_topic(name, partitions)

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """The node that leads a partition; waits for one that runs. Raises TimeoutError."""
        found: ClusterNode = self.wait_until(lambda: self._leader(topic, partition), f"a leader of {topic}-{partition}")
        return found

    def _leader(self, topic: str, partition: int) -> ClusterNode | None:
        for node in self.brokers.values():
            if node.is_running and (found := node.image.topic(topic)) is not None:
                known = node.image.partition(found, partition)
                leader = None if known is None else self.nodes.get(known.leader)
                if leader is not None and leader.is_running:
                    return leader
        return None

    def produce(
        self, topic: str, value: bytes | str | None, *, key: bytes | str | None = None, partition: int = 0
    ) -> int:
        """Writes one record to the partition's leader with acks=all, and returns its offset. Raises KafkaError,
        OSError, TimeoutError."""
        leader = self.leader(topic, partition)
        return self._backend.run(
            leader.node_id,
            lambda client: client.produce(
                topic, value, key=key, partition=partition, timestamp_ms=self._backend.now_ms()
            ),
            LIMIT_S,
        )

    def consume(
        self, topic: str, count: int = 1, *, partition: int = 0, offset: int = 0, timeout_seconds: float = 5.0
    ) -> list[LogRecord]:
        """Reads `count` records from the partition's leader, and waits for them. Raises TimeoutError if fewer arrive;
        KafkaError, OSError."""
        leader = self.leader(topic, partition)
        return self._backend.run(
            leader.node_id,
            lambda client: client.consume(topic, partition, offset, count, timeout_seconds),
            timeout_seconds + LIMIT_S,
        )

    # --- the end ---

    def close(self) -> None:
        """Ends every node, and removes their files. Idempotent."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster {self.describe()}>"


def _backend(
    roles: Mapping[int, tuple[str, ...]],
    configs: Mapping[str, str],
    of_node: Mapping[int, Mapping[str, str]],
    *,
    static: bool,
    seed: int | None,
) -> ClusterBackend:
    if seed is None:
        return RealCluster(roles, configs, of_node, static=static)
    return SimulatedBackend(seed, roles, configs, of_node, static=static)
