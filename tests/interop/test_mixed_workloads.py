"""Which workloads a cluster with brokers of Apache Kafka and of kafkacore supports, and which it does not: see the
section "Limits in a mixed cluster" of docs/migration.md.
"""

import re
import urllib.request

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from asking import ask
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ConsumerGroupHeartbeatRequest, ReadShareGroupStateRequest
from kafkacore.runtime.ports import free_ports
from processes import wait_until
from quorums import OURS
from replicated import LIMIT_S, ReplicatedCluster

pytestmark = pytest.mark.timeout(180)
RELEASE = "apache-4.3"  # 3.9 does not have groups of the new protocols
MINE, THEIRS = 101, 102
# When a broker of Apache Kafka starts, it reads the number of partitions of the internal topics. If a topic does not
# exist yet, the broker uses these keys.
PAGE = free_ports(1)[0]
SETTINGS = {
    "metrics.port": str(PAGE),
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


@pytest.fixture(scope="module")
def cluster(tools_of_either, tmp_path_factory):
    """Starts a controller and a broker of Apache Kafka, and a broker of ours. At first the internal topics are on
    Apache Kafka's broker."""
    cluster = ReplicatedCluster(
        tmp_path_factory.mktemp("cluster"),
        controllers={1: RELEASE},
        brokers={MINE: OURS, THEIRS: RELEASE},
        tools=tools_of_either,
        settings=SETTINGS,
    )
    try:
        cluster.start("4.3")
        for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            cluster.create(name, [[THEIRS]], cleanup_policy="compact")
        cluster.create("ours", [[MINE]])
        cluster.create("theirs", [[THEIRS]])
        for topic in ("ours", "theirs"):
            produce(cluster, topic, b"tea")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def moved(cluster):
    """Returns a function that moves the only partition of an internal topic to a broker. At the end of the test, moves
    the partition back."""
    names = set()

    def move(name, broker):
        names.add(name)
        cluster.move({(name, 0): [broker]})

    yield move
    for name in names:
        cluster.move({(name, 0): [THEIRS]})


def consumer(cluster, group, **settings):
    return Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
        | settings
    )


def poll(member):
    """Returns the next record or error that a consumer receives."""
    return wait_until(lambda: member.poll(0.2), LIMIT_S, "a record or an error")


def produce(cluster, topic, value):
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(LIMIT_S) == 0


def elections(cluster):
    """Returns how often our broker has become the leader of a partition that it cannot coordinate."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{PAGE}/metrics", timeout=10).read().decode()
    name = "kafkacore_server_replicamanager_uncoordinatedelections"
    [value] = re.findall(rf"^{name}(?:_total)? (.*)$", page, re.MULTILINE)
    return float(value)


def our_log(cluster):
    return cluster.brokers[MINE].log.read_text()


def read_as_new_group(cluster, tools):
    """Reads one record as a member of a group with the new protocol. The member commits the record's offset and leaves
    the group."""
    return tools.attempt(
        "kafka-console-consumer", "--bootstrap-server", cluster.bootstrap, "--topic", "ours", "--group", "new",
        "--max-messages", 1, "--timeout-ms", LIMIT_S * 1000, "--command-property", "group.protocol=consumer",
        "--command-property", "auto.offset.reset=earliest",
    )  # fmt: skip


def read_shared(cluster, tools, topic, group, timeout_ms=30_000):
    """Reads one record as a member of a share group, from the group's beginning."""
    server = ("--bootstrap-server", cluster.bootstrap)
    tools.run(
        "kafka-configs", *server, "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    return tools.attempt(
        "kafka-console-share-consumer", *server, "--topic", topic, "--group", group, "--max-messages", 1,
        "--timeout-ms", timeout_ms,
    )  # fmt: skip


def test_new_group_reads_from_ours_only_while_apache_kafka_coordinates(cluster, tools, moved):
    assert read_as_new_group(cluster, tools).lines == ["tea"]
    moved("__consumer_offsets", MINE)
    refused = read_as_new_group(cluster, tools)
    assert (refused.lines, "UnsupportedVersionException: The cluster does not support" in refused.err) == ([], True)
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="new", member_id="m", member_epoch=0)
    answer = ask(cluster.addresses[MINE], heartbeat, 0)
    assert ErrorCode(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION
    assert "this broker leads partition 0 of __consumer_offsets with 1 consumer groups" in our_log(cluster)
    # When Apache Kafka coordinates the group again, it still has its offset, and continues from there.
    moved("__consumer_offsets", THEIRS)
    produce(cluster, "ours", b"rice")
    assert read_as_new_group(cluster, tools).lines == ["rice"]


@pytest.mark.parametrize(("topic", "read"), [("theirs", ["tea"]), ("ours", [])])
def test_share_group_reads_only_partitions_that_apache_kafka_leads(cluster, tools, topic, read):
    found = read_shared(cluster, tools, topic, f"share-{topic}", 30_000 if read else 5_000)
    assert found.lines == read, found


def test_transaction_takes_offsets_to_the_coordinator_of_their_group_of_either_kind(cluster, moved):
    def commit(name):
        member = consumer(cluster, name)
        member.subscribe(["ours"])
        poll(member)
        producer = transactional(cluster, name)
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce("theirs", b"made", partition=0)
        try:
            position = member.position(member.assignment())
            producer.send_offsets_to_transaction(position, member.consumer_group_metadata(), LIMIT_S)
            producer.commit_transaction(LIMIT_S)
            return member.committed([TopicPartition("ours", 0)], LIMIT_S)[0].offset
        finally:
            member.close()

    assert commit("at-theirs") == 1
    moved("__consumer_offsets", MINE)
    assert commit("at-ours") == 1


def transactional(cluster, name):
    return Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0})


def test_transactional_producer_gets_a_final_error_when_ours_would_coordinate(cluster, moved):
    moved("__transaction_state", MINE)
    with pytest.raises(KafkaException) as refused:
        transactional(cluster, "any").init_transactions(LIMIT_S)
    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True)
    assert "this broker leads partitions 0 of __transaction_state" in our_log(cluster)


def test_share_group_reads_nothing_while_ours_would_keep_its_state(cluster, tools, moved):
    """The broker that coordinates the group gets a final error from our broker. A share consumer only logs that its
    broker failed."""
    cluster.create("shared", [[THEIRS]])
    produce(cluster, "shared", b"tea")
    before = elections(cluster)
    assert read_shared(cluster, tools, "shared", "moved").lines == ["tea"]
    produce(cluster, "shared", b"rice")
    moved("__share_group_state", MINE)
    assert "this broker leads partitions 0 of __share_group_state" in our_log(cluster)
    assert elections(cluster) == before + 1
    asked = ReadShareGroupStateRequest.PartitionData(partition=0)
    asked = ReadShareGroupStateRequest.ReadStateData(partitions=[asked])
    answer = ask(cluster.addresses[MINE], ReadShareGroupStateRequest(group_id="moved", topics=[asked]), 0)
    assert ErrorCode(answer.results[0].partitions[0].error_code) == ErrorCode.UNSUPPORTED_VERSION
    refused = read_shared(cluster, tools, "shared", "moved", 10_000)
    assert (refused.lines, "Unknown server error while fetching topic-partition shared-0" in refused.err) == ([], True)
    # When Apache Kafka keeps the state again, the group continues from there.
    moved("__share_group_state", THEIRS)
    assert read_shared(cluster, tools, "shared", "moved").lines == ["rice"]
