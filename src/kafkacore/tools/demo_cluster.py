"""The second and third part of the demo, with three brokers and three controllers, each in its own process. Under load,
SIGKILL ends a leader, and later every controller. Then Apache Kafka takes the place of a broker."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from kafkacore._fast.base.uuid import Uuid
from kafkacore.runtime.ports import free_ports
from kafkacore.storage.format import FormatOptions, format_directories
from kafkacore.tools import demo_apache, dev
from kafkacore.tools.demo_parts import (
    PATIENCE_S,
    DemoFailedError,
    DemoNode,
    check_same,
    create_topic,
    heading,
    read,
    say,
    wait_for,
)

TOPIC: Final = "replicated"
PARTITIONS: Final = 3
REPLICAS: Final = 3
CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (101, 102, 103)
REPLACED: Final = 103  # the broker that Apache Kafka replaces
SESSION_MS: Final = 2_000
ROUND: Final = 24  # the producer pauses after this number of lines, so that the load is steady and below the maximum
PAUSE_S: Final = 0.002
QUEUED: Final = 1_000_000  # the capacity of the producer's queue: more lines than arrive during a stall of PATIENCE_S
MORE: Final = 3000  # the demo counts data as flowing once each partition has accepted this number of further records
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


def show_cluster(directory: Path, text: list[bytes]) -> None:
    """Shows the second and third part of the demo. Raises DemoFailedError if an acknowledged record is lost or
    duplicated, or if clients cannot write and read."""
    heading("A cluster: three brokers and three controllers, six processes")
    cluster = DemoCluster(directory)
    try:
        say(f"ready in {cluster.start():.1f} s; each of {PARTITIONS} partitions has {REPLICAS} replicas")
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, REPLICAS, {"min.insync.replicas": "2"})
        with Stream(cluster.bootstrap, text) as stream:
            say("an idempotent producer with acks=all writes to all of them until the end of this demo")
            kill_leader(cluster, stream)
            kill_controllers(cluster, stream)
            replace_broker(cluster, stream)
        for partition, sent in enumerate(stream.sent):
            check_same(read(cluster.bootstrap, TOPIC, partition, len(sent)), sent)
            if (end := stream.end_offset(partition)) != len(sent):
                raise DemoFailedError(f"{TOPIC}-{partition} has {end:,} records, but {len(sent):,} were sent")
        say(f"all {stream.count():,} acknowledged records are there, each once and in order: nothing was lost")
    finally:
        cluster.kill()


def kill_leader(cluster: DemoCluster, stream: Stream) -> None:
    heading("SIGKILL of a leader")
    stream.wait_progress()
    victim = stream.leader(0)
    node = cluster.brokers[victim]
    stream.forget_stalls()
    node.kill()
    wait_for(lambda: stream.leader(0) not in {victim, -1}, "another leader")
    stream.wait_progress()
    say(f"broker {victim}, pid {node.pid}, was killed; another replica leads, and the producer continues")
    say(f"longest stall: {stream.longest_stall_s():.2f} s; its session of {SESSION_MS / 1000:.0f} s had to end first")
    took_s = node.start()
    began = time.perf_counter()
    wait_for(stream.all_in_sync, "all replicas in sync")
    took_s += time.perf_counter() - began
    say(f"broker {victim} is back: it has caught up, and was in sync {took_s:.1f} s after its start")


def kill_controllers(cluster: DemoCluster, stream: Stream) -> None:
    heading("SIGKILL of all three controllers")
    for node in cluster.controllers.values():
        node.kill()
    before = stream.count()
    stream.forget_stalls()
    stream.wait_progress()
    say(f"{stream.count() - before:,} records have been acknowledged since then; no broker needed a controller")
    say(f"longest stall: {stream.longest_stall_s():.2f} s")


def replace_broker(cluster: DemoCluster, stream: Stream) -> None:
    """Lets Apache Kafka take over the id and the directory of a kafkacore broker. Skips this part if Apache Kafka or
    Java is not installed."""
    installed = demo_apache.find()
    if installed is None:
        heading(demo_apache.MISSING)
        return
    heading(f"Apache Kafka {installed.version} takes the place of a broker")
    for node in cluster.controllers.values():
        node.launch()
    for node in cluster.controllers.values():
        node.wait_ready()
    say("the controllers are back, so brokers can leave and join again")
    replaced = cluster.brokers[REPLACED]
    stream.forget_stalls()
    replaced.stop()
    began = time.perf_counter()
    theirs = cluster.apache = demo_apache.ApacheBroker(installed, replaced.directory, replaced.settings)
    theirs.launch()
    wait_for(lambda: theirs.lives() and stream.all_in_sync(), "all replicas in sync", demo_apache.START_LIMIT_S)
    took_s = time.perf_counter() - began
    say(f"broker {REPLACED} has left; Apache Kafka, pid {theirs.pid}, continues with its id and its directory")
    say(f"it was in sync {took_s:.1f} s after its start; longest stall meanwhile: {stream.longest_stall_s():.2f} s")
    partition = stream.prefer(REPLACED)
    before = stream.acknowledged(partition)
    stream.wait_progress()
    taken = stream.acknowledged(partition) - before
    say(f"it leads partition {partition} and has accepted {taken:,} records since then; the other brokers follow it")


class DemoCluster:
    """The controllers and brokers of the demo. Each is a process with its own directory. With `sampled_of`=N, each node
    writes one of every N requests to a file in the directory `request_logs`."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = _NO_SETTINGS, *, sampled_of: int = 0) -> None:
        self.request_logs = directory / "requests"
        ids = (*CONTROLLERS, *BROKERS)
        addresses = dict(zip(ids, (f"{dev.HOST}:{port}" for port in free_ports(len(ids), dev.HOST)), strict=True))
        shared = {
            "controller.quorum.bootstrap.servers": ",".join(addresses[each] for each in CONTROLLERS),
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "250",
            "metrics.port": "-1",
            **settings,
        }

        def node(node_id: int, role: str, listener: str) -> DemoNode:
            own = {"node.id": str(node_id), "process.roles": role, "listeners": f"{listener}://{addresses[node_id]}"}
            if sampled_of:
                own["sampled.request.log.file"] = str(self.request_logs / f"{role}-{node_id}")
                own["sampled.request.log.every"] = str(sampled_of)
            return DemoNode(directory / str(node_id), shared | own)

        self.controllers = {each: node(each, "controller", "CONTROLLER") for each in CONTROLLERS}
        self.brokers = {each: node(each, "broker", "PLAINTEXT") for each in BROKERS}
        self.bootstrap = ",".join(addresses[each] for each in BROKERS)
        self.apache: demo_apache.ApacheBroker | None = None
        self._voters = ",".join(f"{each}@{addresses[each]}:{Uuid.random()}" for each in CONTROLLERS)

    def start(self) -> float:
        """Formats the directories and starts all processes at the same time. Returns the time in seconds until the last
        process was ready."""
        began = time.perf_counter()
        self.request_logs.mkdir(parents=True, exist_ok=True)
        cluster_id = str(Uuid.random())
        for node_id, node in self._nodes():
            is_voter = node_id in self.controllers
            options = FormatOptions(
                cluster_id,
                initial_controllers=self._voters if is_voter else None,
                no_initial_controllers=not is_voter,
            )
            config = dev.configuration(
                str(node.directory), 0, [f"{key}={value}" for key, value in node.settings.items()]
            )
            format_directories(config, options, time.time_ns() // 1_000_000, say=lambda text: None)
            node.launch()
        for _, node in self._nodes():
            node.wait_ready()
        return time.perf_counter() - began

    def stop(self) -> None:
        """Stops the brokers, and then the controllers. A broker can stop cleanly only while the controllers run."""
        for nodes in (self.brokers, self.controllers):
            for node in nodes.values():
                node.stop()

    def kill(self) -> None:
        """Kills the processes that still run. After the controllers were killed, no broker can stop cleanly, because it
        would wait for a controller's permission."""
        for _, node in self._nodes():
            node.kill()
        if self.apache is not None:
            self.apache.kill()

    def _nodes(self) -> list[tuple[int, DemoNode]]:
        return [*self.controllers.items(), *self.brokers.items()]


class Stream:
    """A thread that writes lines to every partition in turn: `with Stream(bootstrap, text) as stream`.

    At the end of the block, waits until all lines are acknowledged. Raises DemoFailedError if a line was refused.
    `sent` contains the lines by partition.
    """

    def __init__(self, bootstrap: str, text: list[bytes], topic: str = TOPIC, pause_s: float = PAUSE_S) -> None:
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient

        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.topic, self._text, self._pause_s = topic, text, pause_s
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        self._producer = Producer({
            **client, "enable.idempotence": True, "linger.ms": 2, "topic.metadata.refresh.interval.ms": 500,
            "queue.buffering.max.messages": QUEUED,
        })  # fmt: skip
        self._admin = AdminClient(client)
        self._reader = Consumer(client | {"group.id": "demo"})
        self._acknowledged = [0] * PARTITIONS
        self._last = [time.perf_counter()] * PARTITIONS
        self._longest_s = 0.0
        self._refused: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join()
        if kind is not None:
            return
        left = self._producer.flush(PATIENCE_S)
        if left or self._refused:
            raise DemoFailedError(f"{left:,} records were not acknowledged, others were refused: {self._refused[:1]}")

    def count(self) -> int:
        """Returns the number of acknowledged records."""
        return sum(self._acknowledged)

    def wait_progress(self) -> None:
        """Waits until every partition has accepted `MORE` further records."""
        enough = [count + MORE for count in self._acknowledged]
        wait_for(
            lambda: all(count >= goal for count, goal in zip(self._acknowledged, enough, strict=True)),
            f"{MORE} more records in each partition",
        )

    def forget_stalls(self) -> None:
        self._longest_s = 0.0

    def longest_stall_s(self) -> float:
        """Returns the longest time in seconds between two acknowledgements of a partition, since the last
        `forget_stalls`."""
        return self._longest_s

    def leader(self, partition: int) -> int:
        """Returns the id of the broker that leads the partition, or -1 while the partition has no leader."""
        return int(self._partitions()[partition].leader)

    def acknowledged(self, partition: int) -> int:
        return self._acknowledged[partition]

    def prefer(self, broker: int) -> int:
        """Elects `broker` as leader of the partition that has this broker as preferred leader. Returns this
        partition."""
        from confluent_kafka import ElectionType, TopicPartition

        [partition] = [index for index, each in self._partitions().items() if each.replicas[0] == broker]
        self._admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(self.topic, partition)]).result(PATIENCE_S)
        wait_for(lambda: self.leader(partition) == broker, f"broker {broker} as the leader of {self.topic}-{partition}")
        return partition

    def all_in_sync(self) -> bool:
        return all(len(each.isrs) == REPLICAS for each in self._partitions().values())

    def end_offset(self, partition: int) -> int:
        from confluent_kafka import TopicPartition

        return int(self._reader.get_watermark_offsets(TopicPartition(self.topic, partition), PATIENCE_S)[1])

    def _partitions(self) -> dict[int, Any]:
        known: dict[int, Any] = self._admin.list_topics(self.topic, timeout=PATIENCE_S).topics[self.topic].partitions
        return known

    def _run(self) -> None:
        for number, line in enumerate(itertools.cycle(self._text)):
            partition = number % PARTITIONS
            self._producer.produce(self.topic, line, partition=partition, on_delivery=self._delivered)
            self.sent[partition].append(line)
            if number % ROUND == 0:
                self._producer.poll(0)
                if self._ends.wait(self._pause_s):
                    return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(str(error))
            return
        now, partition = time.perf_counter(), message.partition()
        self._longest_s = max(self._longest_s, now - self._last[partition])
        self._last[partition] = now
        self._acknowledged[partition] += 1
