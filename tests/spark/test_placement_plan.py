"""A plan that is made from the directories of a running cluster, compared with the proposal of Apache Kafka's
kafka-reassign-partitions, and applied with this tool."""

import json
import time
from argparse import Namespace
from contextlib import closing
from statistics import median

import pytest

pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from confluent_kafka import Producer

from kafka_tools import KafkaTools
from kafkacore.protocol.messages import CreateTopicsRequest
from kafkacore.testing import Cluster
from processes import PEERS, need, wait_until

RACKS = {2: "a", 3: "b", 4: "a", 5: "b"}
HOT, COLD = "hot", "cold"
DAY_MS = 86_400_000
VALUE = 10_000
PROPOSALS = 9  # each is random, and a lucky one can have fewer bytes on its fullest broker than our plan
# The number of records in each partition, and its replicas. Brokers 4 and 5 have just been added to the cluster.
RECORDS = {HOT: (20, 16, 12, 8, 6, 4), COLD: (24, 20, 10, 8, 6, 2)}
REPLICAS = {HOT: [[2, 3]] * 5 + [[4, 5]], COLD: [[3, 2]] * 5 + [[5, 4]]}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tools():
    need((PEERS / "kafka-4.3.1" / ".complete").exists(), "make peers: Apache Kafka's jars, Java 17 and Maven")
    with closing(KafkaTools("apache-4.3")) as started:
        yield started


@pytest.fixture(scope="module")
def cluster():
    racks = {broker: {"broker.rack": rack} for broker, rack in RACKS.items()}
    with Cluster(controllers=1, brokers=4, of_node=racks, configs={"auto.leader.rebalance.enable": "false"}) as started:
        for topic in REPLICAS:
            create(started, topic)
            # The records of the cold topic are two days old, so they count for its size and not for its rate.
            fill(started.bootstrap, topic, time.time_ns() // 1_000_000 - (2 * DAY_MS if topic == COLD else 0))
        yield started


def create(cluster, topic):
    made = CreateTopicsRequest
    assignments = [
        made.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
        for number, replicas in enumerate(REPLICAS[topic])
    ]
    config = made.CreatableTopicConfig(name="retention.ms", value="-1")
    new = made.CreatableTopic(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[config]
    )
    answer = cluster[2].ask(made(topics=[new], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0, answer
    for partition in range(len(assignments)):
        cluster.leader(topic, partition)


def fill(bootstrap, topic, timestamp_ms):
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, "linger.ms": 1})
    for partition, count in enumerate(RECORDS[topic]):
        for _ in range(count):
            producer.produce(topic, b"v" * VALUE, partition=partition, timestamp=timestamp_ms)
            producer.poll(0)
    assert producer.flush(60) == 0


def directories(cluster):
    return [node.server.config.all_log_dirs[0] for node in cluster]


def held(spark, cluster):
    """Returns the bytes that each broker holds, from the sizes of its segments."""
    reader = spark.read.format("kafkacore-log").option("path", ",".join(directories(cluster)))
    segments = reader.option("table", "segments").option("topics", f"{HOT},{COLD}").load()
    live = segments.where("kind = 'live'").groupBy("broker").sum("sizeBytes").collect()
    return {row["broker"]: row["sum(sizeBytes)"] for row in live}


def leaders(cluster):
    image = cluster[2].image
    found = dict.fromkeys(RACKS, 0)
    for topic, rows in RECORDS.items():
        for number in range(len(rows)):
            found[image.partition(image.topic(topic), number).leader] += 1
    return found


def proposed(tools, cluster, tmp_path):
    """Returns the replicas that kafka-reassign-partitions --generate proposes, by topic and partition."""
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic} for topic in RECORDS]}))
    out = tools.run(
        "kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap, "--generate",
        "--topics-to-move-json-file", topics, "--broker-list", ",".join(map(str, RACKS)),
    ).out  # fmt: skip
    plan = json.loads(out.split("Proposed partition reassignment configuration")[1])
    return {(each["topic"], each["partition"]): tuple(each["replicas"]) for each in plan["partitions"]}


def apply(tools, cluster, plan):
    """Executes a plan, waits until it is complete, and makes the preferred replicas leaders."""

    def run(action):
        arguments = ("--bootstrap-server", cluster.bootstrap, f"--{action}", "--reassignment-json-file", plan)
        return tools.run("kafka-reassign-partitions", *arguments).out

    run("execute")
    count = len(json.loads(plan.read_text())["partitions"])
    wait_until(lambda: run("verify").count("is completed.") == count, timeout_s=60, what="the end of the plan")
    tools.run(
        "kafka-leader-election", "--bootstrap-server", cluster.bootstrap, "--election-type", "PREFERRED",
        "--all-topic-partitions",
    )  # fmt: skip


def findings(spark, cluster):
    """Returns what the replica audit finds in the directories of the running brokers."""
    from kafkacore.spark.pipelines.controller_report import last_isr
    from kafkacore.spark.pipelines.replica_audit import audit_directories

    paths = directories(cluster)
    reader = spark.read.format("kafkacore-log").option("path", ",".join(paths))
    metadata = reader.option("table", "metadata").load()
    isr = last_isr(metadata)
    return audit_directories(spark, paths, isr=isr).findings.collect()


def test_plan_beats_the_proposal_of_kafka_and_comes_true_when_it_is_applied(spark, cluster, tools, tmp_path):
    from kafkacore.spark.pipelines.commands import report_on
    from kafkacore.spark.pipelines.placement import load
    from kafkacore.spark.pipelines.placement_plan import plan_directories
    from kafkacore.spark.pipelines.report import Report

    now, changed, racks, fenced = plan_directories(spark, directories(cluster))
    assert (racks, fenced) == (RACKS, frozenset())
    assert {(one.topic, one.number): one.replicas for one in now} == {
        (topic, number): tuple(replicas) for topic, rows in REPLICAS.items() for number, replicas in enumerate(rows)
    }
    assert all((one.rate > 0) == (one.topic == HOT) for one in now)

    before, after = load(now, [], racks), load(now, changed, racks)
    assert before.bytes == held(spark, cluster)
    proposals = []
    for _ in range(PROPOSALS):
        theirs = proposed(tools, cluster, tmp_path)
        proposals.append(load(now, [one._replace(replicas=theirs[one.topic, one.number]) for one in now], racks))
    for measure in ("bytes", "rates", "leaders"):
        most = [max(getattr(each, measure).values()) for each in proposals]
        assert max(getattr(after, measure).values()) <= median(most), measure
    assert after.moved <= median(each.moved for each in proposals)
    assert all({racks[broker] for broker in one.replicas} == {"a", "b"} for one in changed)

    output = tmp_path / "plan"
    output.mkdir()
    arguments = Namespace(
        pipeline="placement-plan", path=directories(cluster), output=str(output), drain=[], rate_hours=24.0
    )
    assert report_on(spark, arguments, Report("plan")) == 0
    apply(tools, cluster, output / "reassignment.json")
    wait_until(lambda: held(spark, cluster) == after.bytes, timeout_s=60, what="the planned bytes on each broker")
    wait_until(lambda: leaders(cluster) == after.leaders, timeout_s=60, what="the planned leaders of each broker")
    assert findings(spark, cluster) == []
