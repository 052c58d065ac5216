"""Limits on the rate of replication, called throttles (KIP-73), on three nodes. Tests set the throttles with
kafka-configs, and with the tool that reassigns partitions.

A throttle can be tested without an upper time limit: after some seconds, the replica must not have received more data
than the rate allows. On a slow machine the replica receives less data.
"""

import json
import os
import time

import pytest
from confluent_kafka import Producer

from process_cluster import LIMIT_S
from replacements import Operator
from replicated import Writes
from three_nodes import three_nodes

pytestmark = pytest.mark.timeout(240)
FETCH_BYTES = 64 << 10
# The size of one Fetch, which may exceed the throttle. An unused quota also allows one sample above its rate.
SETTINGS = {"replica.fetch.max.bytes": str(FETCH_BYTES)}
FILLED_BYTES = 6_000_000
RECORD_BYTES = 10_000
SLOW_BYTES_S = 100_000  # at this rate, the whole partition would take a minute
BURST_BYTES = SLOW_BYTES_S + 2 * FETCH_BYTES
SEEN_BYTES = 300_000
RATES = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    with three_nodes(request.config, tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def filled(cluster, topic_name):
    """Makes a topic with FILLED_BYTES in its only partition, which is on node 1."""
    cluster.create(topic_name, [[1]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": FETCH_BYTES, "linger.ms": 5})
    for _ in range(FILLED_BYTES // RECORD_BYTES):
        producer.produce(topic_name, os.urandom(RECORD_BYTES), partition=0)
    assert producer.flush(LIMIT_S) == 0
    return topic_name


@pytest.fixture
def beside(cluster, topic_name):
    """Makes a partition on the same nodes that is not throttled."""
    name = f"{topic_name}-beside"
    cluster.create(name, [[1, 2, 3]])
    return name, 0


def arrived(cluster, node_id, topic):
    """Returns the number of bytes that a node has on disk for partition 0."""
    return sum(file.stat().st_size for file in (cluster.brokers[node_id].data / f"{topic}-0").glob("*.log"))


def wait_arrived(cluster, node_id, topic, size_bytes):
    cluster.wait(lambda: arrived(cluster, node_id, topic) >= size_bytes, f"{size_bytes} bytes of {topic} at {node_id}")


def assert_throttled(cluster, node_id, topic, began, rate):
    found, elapsed_s = arrived(cluster, node_id, topic), time.monotonic() - began
    assert found <= BURST_BYTES + 2 * rate * elapsed_s, f"{found} bytes in {elapsed_s:.1f} s"


def assert_faster(moved_bytes, began, rate):
    """Checks that the remaining data arrives at more than twice the rate. Without a throttle it arrives in a moment,
    even on a busy machine."""
    elapsed_s = time.monotonic() - began
    assert moved_bytes > 2 * rate * elapsed_s, f"{moved_bytes} bytes in {elapsed_s:.1f} s"


class Configs:
    """Runs kafka-configs. `add` and `delete` change settings of topics and brokers, and `shows` returns the dynamic
    settings."""

    def __init__(self, cluster, tools):
        self.cluster, self.tools = cluster, tools

    def run(self, *arguments):
        return self.tools.run("kafka-configs", "--bootstrap-server", self.cluster.bootstrap, *arguments).out

    def add(self, kind, name, settings):
        text = ",".join(f"{key}={value}" for key, value in settings.items())
        self.run("--alter", "--entity-type", kind, "--entity-name", name, "--add-config", text)

    def delete(self, kind, name, keys):
        self.run("--alter", "--entity-type", kind, "--entity-name", name, "--delete-config", ",".join(keys))

    def shows(self, kind, name):
        shown = self.run("--describe", "--entity-type", kind, "--entity-name", name)
        pairs = [line.split()[0].partition("=") for line in shown.splitlines() if " synonyms=" in line]
        return {key: value for key, _, value in pairs if key in RATES + REPLICAS}


@pytest.mark.parametrize(("tools", "side"), [("apache-3.9", "follower"), ("apache-4.3", "leader")], indirect=["tools"])
def test_replica_is_slow_while_kafka_configs_throttles_it(cluster, tools, filled, beside, side):
    configs = Configs(cluster, tools)
    node_id = 1 if side == "leader" else 2
    rate, replicas = f"{side}.replication.throttled.rate", f"{side}.replication.throttled.replicas"
    configs.add("topics", filled, {replicas: f"[0:{node_id}]"})
    configs.add("brokers", node_id, {rate: SLOW_BYTES_S})
    assert configs.shows("topics", filled) == {replicas: f"0:{node_id}"}
    assert configs.shows("brokers", node_id) == {rate: str(SLOW_BYTES_S)}
    with Writes(cluster, [beside]) as writes:
        began = time.monotonic()
        cluster.reassign({(filled, 0): [2]})
        wait_arrived(cluster, 2, filled, SEEN_BYTES)
        assert_throttled(cluster, 2, filled, began, SLOW_BYTES_S)
        writes.wait_progress()
        assert cluster.state(filled).replicas != (2,), "the reassignment must not be complete yet"
        before = arrived(cluster, 2, filled)
        configs.delete("brokers", node_id, [rate])
        began = time.monotonic()
        cluster.wait(lambda: cluster.state(filled).replicas == (2,), "the move's end")
        assert_faster(FILLED_BYTES - before, began, SLOW_BYTES_S)
    configs.delete("topics", filled, [replicas])
    assert configs.shows("brokers", node_id) == configs.shows("topics", filled) == {}
    cluster.assert_whole(writes)


def plan(path, topic, *replicas):
    file = path / "plan.json"
    partitions = [{"topic": topic, "partition": 0, "replicas": replicas}]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", file


@pytest.mark.parametrize(
    ("tools", "ours"), [("apache-3.9", False), ("apache-4.3", False), ("apache-4.3", True)], indirect=["tools"]
)
def test_reassignment_is_slow_until_more_is_allowed_or_it_is_cancelled(cluster, tools, ours, filled, beside, tmp_path):
    operator = Operator(cluster, tools, ours=ours)

    def reassign(action, *options):
        return operator.type("reassign-partitions", action, *plan(tmp_path, filled, 2), *options)

    def throttles():
        return [configs.shows("topics", filled), *(configs.shows("brokers", each) for each in (1, 2))]

    configs = Configs(cluster, tools)
    under_way = f"Reassignment of partition {filled}-0 is still in progress."
    with Writes(cluster, [beside]) as writes:
        began = time.monotonic()
        lines = reassign("--execute", "--throttle", SLOW_BYTES_S)
        assert f"The inter-broker throttle limit was set to {SLOW_BYTES_S} B/s" in lines
        limits = dict.fromkeys(RATES, str(SLOW_BYTES_S))
        assert throttles() == [dict(zip(REPLICAS, ("0:1", "0:2"), strict=True)), limits, limits]
        wait_arrived(cluster, 2, filled, SEEN_BYTES)
        assert under_way in reassign("--verify", "--preserve-throttles")
        assert_throttled(cluster, 2, filled, began, SLOW_BYTES_S)
        writes.wait_progress()
        assert f"Successfully cancelled partition reassignment for: {filled}-0" in reassign("--cancel")
        cluster.wait(lambda: throttles() == [{}] * 3, "every broker to know that the throttles have ended")
        cluster.wait(lambda: cluster.state(filled).replicas == (1,), "the move's end")

        reassign("--execute", "--throttle", SLOW_BYTES_S)
        wait_arrived(cluster, 2, filled, FETCH_BYTES)
        before, began = arrived(cluster, 2, filled), time.monotonic()
        lines = reassign("--execute", "--additional", "--throttle", 100 * SLOW_BYTES_S)
        assert f"The inter-broker throttle limit was set to {100 * SLOW_BYTES_S} B/s" in lines
        cluster.wait(lambda: cluster.state(filled).replicas == (2,), "the move's end")
        assert_faster(FILLED_BYTES - before, began, SLOW_BYTES_S)
        assert f"Reassignment of partition {filled}-0 is completed." in reassign("--verify")
        cluster.wait(lambda: throttles() == [{}] * 3, "every broker to know that the throttles have ended")
    cluster.assert_whole(writes)
