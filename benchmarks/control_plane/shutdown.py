"""Counts the requests that the controller sends to brokers because of one controlled shutdown, and the controller's
waits for ZooKeeper. Afterwards restarts the broker, and sends it a StopReplica with its previous broker epoch again."""

import collections
import contextlib
import struct
import time

import benchmarks.peers  # noqa: F401
from benchmarks.control_plane.pairs import CONTROLLER, LOADED, Link
from benchmarks.control_plane.wiretap import KafkaCounts, Wiretap, ZooKeeperCounts

from asking import ask
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import CreateTopicsRequest, StopReplicaResponse
from kafkacore.runtime.ports import free_ports
from processes import wait_until
from zookeeper_cluster import ZooKeeperCluster

LIMIT_S = 60
ATTEMPTS = 3
QUIET_S = 1.0  # after this time without a request, the controller has finished its work for the new topic
BOTH = (CONTROLLER, LOADED)
SENT = {
    "LeaderAndIsr": ApiKey.LEADER_AND_ISR,
    "UpdateMetadata": ApiKey.UPDATE_METADATA,
    "StopReplica": ApiKey.STOP_REPLICA,
}


class Tapped:
    """Two brokers with a separate control plane listener. Proxies stand in front of both of these listeners, of the
    controller's inter-broker listener (which receives ControlledShutdown), and of ZooKeeper. The ZooKeeper proxy sees
    only the controller's connection."""

    def __init__(self, path, kind):
        self.cluster = ZooKeeperCluster(path, dict.fromkeys(BOTH, kind), control=BOTH)
        self.control = {node_id: KafkaCounts(time.perf_counter) for node_id in BOTH}
        self.inter_broker = KafkaCounts(time.perf_counter)
        self.zookeeper = ZooKeeperCounts(time.perf_counter)
        ports = free_ports(4)
        targets = [*self.cluster.control_addresses.values(), self.cluster.addresses[CONTROLLER]]
        counts = [*self.control.values(), self.inter_broker]
        self._taps = [
            Wiretap(port, target, each.on_request, each.on_answer)
            for port, target, each in zip(ports, targets, counts, strict=False)
        ]
        self._taps.append(
            Wiretap(ports[3], self.cluster.zookeeper.connect, self.zookeeper.on_request, self.zookeeper.on_answer)
        )
        plain = {CONTROLLER: f"127.0.0.1:{ports[2]}", LOADED: self.cluster.addresses[LOADED]}
        for node_id, port in zip(BOTH, ports, strict=False):
            own = {"advertised.listeners": f"PLAINTEXT://{plain[node_id]},CONTROL://127.0.0.1:{port}"}
            if node_id == CONTROLLER:
                own["zookeeper.connect"] = f"127.0.0.1:{ports[3]}/kafka"
            set_lines(self.cluster.brokers[node_id].properties, own)

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *_):
        self.cluster.close()
        for tap in self._taps:
            tap.close()

    def wait_quiet(self):
        def quiet():
            last = max((counts.requests[-1][0] for counts in self.control.values() if counts.requests), default=0.0)
            return time.perf_counter() - last > QUIET_S

        wait_until(quiet, LIMIT_S, "a controller that sends nothing")


def set_lines(properties, lines):
    kept = [line for line in properties.read_text().splitlines() if line.partition("=")[0] not in lines]
    properties.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in lines.items())]) + "\n")


class EndedEarly(RuntimeError):
    """The broker ended before it got the StopReplica, so there is nothing to send again."""


def measure(path, kind, partitions):
    """Stops a broker that leads half of the partitions and is a follower of the others. Returns the counts. Starts over
    if the broker ended early."""
    for attempt in range(1, ATTEMPTS):
        with contextlib.suppress(EndedEarly):
            return measure_once(f"{path}-{attempt}", kind, partitions)
    return measure_once(f"{path}-{ATTEMPTS}", kind, partitions)


def measure_once(path, kind, partitions):
    with Tapped(path, kind) as tapped:
        cluster = tapped.cluster
        create(cluster, partitions)
        tapped.wait_quiet()
        began = time.perf_counter()
        cluster.brokers[LOADED].stop()
        ended = time.perf_counter()
        asked = [
            at for at, key, _, _ in tapped.inter_broker.requests if key == ApiKey.CONTROLLED_SHUTDOWN and at > began
        ]
        answered = [
            at for at, key, _ in tapped.inter_broker.answers if key == ApiKey.CONTROLLED_SHUTDOWN and at > began
        ]
        if not asked or not answered:
            raise RuntimeError("the broker ended without a ControlledShutdown")
        found = counted(tapped, asked[0], ended)
        requests, trips = tapped.zookeeper.between(asked[0], answered[-1])
        found |= {"ZooKeeper requests": requests, "ZooKeeper round trips": trips, "ControlledShutdown": len(asked)}
        found["ControlledShutdown ms"] = (answered[-1] - asked[0]) * 1e3
        cluster.brokers[LOADED].start()
        cluster.wait_members(BOTH)
        found["error code for a StopReplica of the former generation"] = replayed(tapped, asked[0], ended)
        return found


def create(cluster, partitions):
    made = CreateTopicsRequest
    replicas = [
        made.CreatableReplicaAssignment(partition_index=index, broker_ids=[LOADED, CONTROLLER][:: 1 - 2 * (index % 2)])
        for index in range(partitions)
    ]
    topic = made.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=replicas)
    [result] = ask(cluster.addresses[CONTROLLER], made(topics=[topic], timeout_ms=LIMIT_S * 1000), 5).topics
    if result.error_code:
        raise RuntimeError(f"CreateTopics: error {result.error_code}, {result.error_message}")
    cluster.wait_isr("t", partitions - 1, *BOTH)


def counted(tapped, begin, end):
    """Returns three things: the number of requests of each API, how many partitions StopReplica requests named, and how
    many of these partitions were named more than once."""
    found = {}
    for name, key in SENT.items():
        found[name] = sum(len(each.between(begin, end, key)) for each in tapped.control.values())
    stopped = collections.Counter(
        (topic.topic_name, state.partition_index)
        for request in tapped.control[LOADED].between(begin, end, ApiKey.STOP_REPLICA)
        for topic in request.topic_states
        for state in topic.partition_states
    )
    return found | {"stopped partitions": len(stopped), "stopped twice": sum(n > 1 for n in stopped.values())}


def replayed(tapped, begin, end):
    """Sends the restarted broker a StopReplica that it received before its restart. Returns the error code of the
    answer."""
    frames = [
        (version, frame)
        for at, key, version, frame in tapped.control[LOADED].requests
        if key == ApiKey.STOP_REPLICA and begin <= at <= end
    ]
    if not frames:
        raise EndedEarly("the broker got no StopReplica")
    version, frame = frames[0]
    with Link(tapped.cluster.control_addresses[LOADED]) as link:
        answer = link.call(struct.pack(">i", len(frame)) + frame)
    header = len(apis.response_header(ApiKey.STOP_REPLICA, version, 1))
    return StopReplicaResponse.decode(answer[header:], version).error_code
