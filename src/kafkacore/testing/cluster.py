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
from kafkacore.testing.lookup import Topics, UnknownName, as_text, unknown, with_partitions
from kafkacore.testing.real_cluster import RealCluster
from kafkacore.testing.simulated_cluster import SimulatedBackend

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
LIMIT_S: Final = 30.0
# How long `leader` waits for an unknown topic. A client's request may be creating the topic, and the nodes learn of a
# topic one after another.
NEW_TOPIC_LIMIT_S: Final = 3.0
MOST_SLOW_MS: Final = 1_000


class ClusterNode:
    """One node of a cluster: its id and roles, methods to start and stop it, and its view of the cluster."""

    def __init__(self, cluster: Cluster, backend: ClusterBackend, node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self._backend = backend

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the node: "broker", "controller" or both."""
        return self._backend.roles[self.node_id]

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker, for clients. Raises ValueError if the node has no socket."""
        return self._backend.bootstrap(self.node_id)

    @property
    def state(self) -> str:
        """The state of the node: off, starting, running, paused, stopping or failed."""
        return self._backend.state(self.node_id)

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def server(self) -> Node:
        """The node itself. Raises RuntimeError if it is not running."""
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
        """Returns whether this node regards itself as the active controller. The node may be mistaken."""
        server = self._backend.server(self.node_id)
        controller = None if server is None else server.controller_server
        return self.is_running and controller is not None and controller.quorum.active

    @property
    def image(self) -> MetadataImage:
        """The committed metadata that this node has applied. Raises RuntimeError if it is not running."""
        server = self.server
        if "broker" in self.roles:
            return server.broker.context.image
        assert server.controller_server is not None
        return server.controller_server.quorum.image

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by topic name, as this node knows them."""
        return {topic.name: len(topic.partition_rows) for topic in self.image.topics()}

    def leads(self, topic: str, partition: int = 0) -> bool:
        """Returns whether this broker has taken over the leadership of the partition. The broker may have lost the
        leadership again without knowing."""
        server = self._backend.server(self.node_id)
        if server is None or not self.is_running or "broker" not in self.roles:
            return False
        replica = server.broker.replicas.by_name(topic, partition)
        return replica is not None and replica.role == "leader"

    def kill(self) -> None:
        """Ends the node as SIGKILL does. The node notifies no other node, and recovers its logs at its next start."""
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
        """Pauses the node, as SIGSTOP does: the node keeps its connections and does nothing. Possible only in a
        simulated cluster."""
        self._backend.pause(self.node_id)

    def resume(self) -> None:
        """Resumes the node, as SIGCONT does."""
        self._backend.resume(self.node_id)

    def ask(self, request: Any, version: int | None = None, limit_s: float = LIMIT_S) -> Any:
        """Sends any request of `kafkacore.protocol.messages` and returns the response. Raises OSError, TimeoutError,
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
        """Waits for an active controller and returns the one with the newest epoch. Raises TimeoutError."""
        found: ClusterNode = self._cluster.wait_until(lambda: self.current, "an active controller")
        return found

    @property
    def current(self) -> ClusterNode | None:
        """The active controller with the newest epoch, or None if there is no active controller now."""
        found = [node for node in self if node.is_active_controller]
        return max(found, key=lambda node: node.server.replica.raft.epoch, default=None)  # type: ignore[union-attr]

    @property
    def standbys(self) -> list[ClusterNode]:
        """The running controllers that are not active."""
        active = self.active
        return [node for node in self if node.is_running and node is not active]

    def __iter__(self) -> Iterator[ClusterNode]:
        return (node for node in self._cluster if "controller" in node.roles)

    def __getitem__(self, node_id: int) -> ClusterNode:
        return self._cluster[node_id]


class Cluster:
    """`Cluster(controllers=3, brokers=3)` has nodes with one role each. `Cluster(nodes=3)` has nodes with both roles.
    `Cluster()` has one node. Node ids count from 1: first the nodes with both roles, then controllers, then brokers.

    Without a `seed`, the nodes have sockets and files, and time is real. With a seed, the cluster is simulated on one
    thread and in virtual time, and the same seed gives the same run. The only clients of a simulated cluster are
    `produce`, `consume` and `ask`.

    `topics` is a list of names, or a mapping from each name to its number of partitions. `configs` sets configuration
    keys on every node. `of_node` maps a node id to the keys of that node alone. With `static`, the configuration lists
    the voters (kraft.version 0). Otherwise the metadata log holds them (KIP-853).

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
            raise ValueError(
                f"of_node names nodes that do not exist: {sorted(unknown)}; the nodes are 1 to {len(by_id)}"
            )
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
        if node_id not in self.nodes:
            raise UnknownName(f"there is no node {node_id}; the nodes are 1 to {len(self.nodes)}")
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
        """The running nodes that the active controller can reach."""
        active = self.controller.active.node_id
        passes = self._backend.passes
        return [
            node for node in self if node.is_running and passes(active, node.node_id) and passes(node.node_id, active)
        ]

    # --- faults ---

    def cut(self, source: int | Iterable[int], target: int | Iterable[int]) -> None:
        """Cuts the link between two nodes in one direction, or the links between two groups of nodes in both
        directions: `cut([1], [2, 3])`. Messages wait until `heal`, and the nodes are not notified."""
        if isinstance(source, int) and isinstance(target, int):
            self._backend.cut(self[source].node_id, self[target].node_id)
        else:
            self.partition(*([each] if isinstance(each, int) else each for each in (source, target)))

    def partition(self, *groups: Iterable[int]) -> None:
        """Cuts every link between nodes of different groups, in both directions. Clients can still reach every node."""
        for one, other in permutations(map(tuple, groups), 2):
            for source, target in product(one, other):
                self.cut(source, target)

    def slow_disk(self, node_id: int, ms: float) -> None:
        """Makes every disk operation on the node's logs take `ms` longer, up to a second. `ms=0` ends the delay.
        Neither `heal` nor a restart of the node ends the delay."""
        if not 0 <= ms < MOST_SLOW_MS:
            raise ValueError(f"a disk operation can be slowed by 0 to below {MOST_SLOW_MS} ms, not by {ms}")
        self._backend.slow_disk(self[node_id].node_id, ms)

    def heal(self) -> None:
        """Restores every link."""
        self._backend.heal()

    # --- waits ---

    def wait_until(self, condition: Callable[[], Any], what: str = "the condition", limit_s: float = LIMIT_S) -> Any:
        """Returns the first true value of `condition()`. Raises TimeoutError, which shows the state of each node."""
        found = self._backend.wait_until(condition, limit_s)
        if not found:
            raise TimeoutError(f"{what} did not happen within {limit_s:g} s. Now: {self.describe()}")
        return found

    def wait_until_ready(self, limit_s: float = LIMIT_S) -> None:
        """Waits until there is an active controller, every running node has the active controller's metadata, and every
        running broker is unfenced."""
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
        """Lets time pass. In a simulated cluster, this is virtual time."""
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
        """Creates a topic. Waits until all running nodes that the active controller can reach know the topic, and
        returns the topic's name. Raises KafkaError, TimeoutError."""
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
        """Creates several topics. `topics` is a list of names, or a mapping from each name to its number of
        partitions."""
        for name, partitions in with_partitions(topics):
            self.create_topic(name, partitions)

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """Waits until a running node has taken over the leadership of the partition, and returns this node. Raises
        TimeoutError, and UnknownName if the active controller does not know the partition after 3 seconds."""
        exists = self._backend.wait_until(lambda: self._may_exist(topic, partition), NEW_TOPIC_LIMIT_S)
        if not exists:
            counts = self.controller.active.topics
            if topic not in counts:
                raise UnknownName(unknown("topic", topic, counts))
            raise UnknownName(
                f"topic {topic} has no partition {partition}: its partitions are 0 to {counts[topic] - 1}"
            )
        found: ClusterNode = self.wait_until(lambda: self._leader(topic, partition), f"a leader of {topic}-{partition}")
        return found

    def _may_exist(self, topic: str, partition: int) -> bool:
        """Returns whether the active controller knows the partition. Returns True if there is no active controller."""
        active = self.controller.current
        found = None if active is None else active.image.topic(topic)
        return active is None or (found is not None and active.image.partition(found, partition) is not None)

    def _leader(self, topic: str, partition: int) -> ClusterNode | None:
        for node in self.brokers.values():
            if node.is_running and (found := node.image.topic(topic)) is not None:
                known = node.image.partition(found, partition)
                leader = None if known is None else self.nodes.get(known.leader)
                # The leader may learn later than other brokers that it leads.
                if leader is not None and leader.leads(topic, partition):
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
        """Reads `count` records from the partition's leader. Waits for records that do not exist yet. Raises
        TimeoutError if fewer records arrive in time, and KafkaError, OSError."""
        leader = self.leader(topic, partition)
        return self._backend.run(
            leader.node_id,
            lambda client: client.consume(topic, partition, offset, count, timeout_seconds),
            timeout_seconds + LIMIT_S,
        )

    # --- closing ---

    def close(self) -> None:
        """Stops all nodes and removes their files. Idempotent."""
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
