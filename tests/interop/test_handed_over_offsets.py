"""A partition of __consumer_offsets that a coordinator of Apache Kafka wrote before our broker became its leader. It
contains committed, aborted and pending offsets of transactions, and groups of the new protocol."""

from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from asking import ask
from brokers import APACHE
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ConsumerGroupHeartbeatRequest, OffsetFetchRequest
from processes import wait_until
from quorums import OURS
from replicated import ReplicatedCluster

pytestmark = pytest.mark.timeout(240)
OUR_BROKER, COORDINATOR = 101, 102
OFFSETS = "__consumer_offsets"


@contextmanager
def started(path, tools, kind, controller):
    """Starts a broker of Apache Kafka that coordinates all groups and transactions, and a broker of ours. Our broker
    leads the topic `t`, and follows the partition of the groups."""
    brokers = {OUR_BROKER: OURS, COORDINATOR: kind}
    cluster = ReplicatedCluster(path, controllers={1: controller}, brokers=brokers, tools=tools)
    try:
        cluster.start(".".join(APACHE[kind].split(".")[:2]))
        cluster.create("__transaction_state", [[COORDINATOR]], cleanup_policy="compact")
        cluster.create(OFFSETS, [[COORDINATOR, OUR_BROKER]], cleanup_policy="compact")
        cluster.create("t", [[OUR_BROKER], [OUR_BROKER]])
        yield cluster
    finally:
        cluster.close()


class Transactional:
    """A transactional producer that commits offsets of group `g`."""

    def __init__(self, cluster, name):
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0})
        self.producer.init_transactions(60)
        self.consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})

    def send(self, partition, offset):
        self.producer.begin_transaction()
        group = self.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([TopicPartition("t", partition, offset)], group, 60)


def committed(cluster, require_stable):
    """Returns our broker's answer for group `g`: the offset or the name of the error, by partition."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    answer = ask(
        cluster.addresses[OUR_BROKER], OffsetFetchRequest(groups=[group], require_stable=require_stable), 8
    ).groups[0]
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    return {
        each.partition_index: ErrorCode(each.error_code).name if each.error_code else each.committed_offset
        for each in answer.topics[0].partitions
    }


def wait_committed(cluster, expected, require_stable):
    wait_until(
        lambda: committed(cluster, require_stable) == expected,
        60,
        f"committed offsets {expected}",
        lambda: f"they are {committed(cluster, require_stable)}\n{cluster.seen()}",
    )


def hand_over(cluster):
    cluster.move({(OFFSETS, 0): [OUR_BROKER, COORDINATOR]})
    cluster.prefer([(OFFSETS, 0)])


@pytest.mark.parametrize(("kind", "commits"), [("apache-4.3", True), ("apache-3.9", False)])
def test_transaction_that_was_open_at_the_hand_over_ends_in_our_coordinator(tmp_path, tools_of_either, kind, commits):
    with started(tmp_path, tools_of_either, kind, OURS) as cluster:
        check_transactions(cluster, commits)


def check_transactions(cluster, commits):
    ended, left_open = Transactional(cluster, "ended"), Transactional(cluster, "open")
    ended.send(0, 5)
    ended.producer.commit_transaction(60)
    ended.send(0, 7)
    ended.producer.abort_transaction(60)
    left_open.send(1, 9)
    hand_over(cluster)
    wait_committed(cluster, {0: 5, 1: "UNSTABLE_OFFSET_COMMIT"}, True)
    assert committed(cluster, False) == {0: 5, 1: -1}
    end(left_open, commits)
    open_at = 9 if commits else -1
    wait_committed(cluster, {0: 5, 1: open_at}, True)
    # The producer that used the old coordinator now commits offsets to this coordinator.
    ended.send(0, 11)
    wait_committed(cluster, {0: "UNSTABLE_OFFSET_COMMIT", 1: open_at}, True)
    assert committed(cluster, False) == {0: 5, 1: open_at}
    end(ended, commits)
    wait_committed(cluster, {0: 11 if commits else 5, 1: open_at}, True)


def end(transactional, commits):
    if commits:
        transactional.producer.commit_transaction(60)
    else:
        transactional.producer.abort_transaction(60)


def test_broker_names_the_partition_when_it_holds_groups_of_the_new_protocol(tmp_path, tools_of_either):
    # Only a controller of Apache Kafka finalises group.version, and without that, no broker serves groups of the new
    # protocol.
    with started(tmp_path, tools_of_either, "apache-4.3", "apache-4.3") as cluster:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "new", "group.protocol": "consumer", "log_level": 0}
        )
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(0.2) or consumer.assignment(), 60, "an assignment", cluster.seen)
        hand_over(cluster)
        log = tmp_path / str(OUR_BROKER) / "node.log"
        expected = f"this broker leads partition 0 of {OFFSETS} with 1 consumer groups"
        wait_until(lambda: expected in log.read_text(), 60, "the error in our broker's log", cluster.seen)
        asked = ConsumerGroupHeartbeatRequest(group_id="new", member_id="m", member_epoch=1)
        answer = ask(cluster.addresses[OUR_BROKER], asked, 1)
        assert ErrorCode(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION
        consumer.close()
