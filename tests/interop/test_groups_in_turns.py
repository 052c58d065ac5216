"""Our node and Apache Kafka 4.3 alternately coordinate a group. The group keeps its member without a rebalance, and
keeps its offsets.
"""

import json
import re

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import InTurns
from group_members import ConfluentMember, poll_until
from segments import segments

PARTITIONS, RECORDS = 4, 100
OFFSETS = "__consumer_offsets"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def node(tmp_path, tools):
    made = InTurns("apache-4.3", tmp_path, {"offsets.topic.compression.codec": "4"})
    yield made
    if made.child is not None:
        made.stop()


def produce(node, count):
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(count):
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def goes_on(node, member, rounds):
    """Writes another round of records, which the same member must read and commit."""
    produce(node, RECORDS)
    poll_until([member], lambda: len(member.values) == rounds * RECORDS, f"round {rounds} is read")
    member.commit()
    assert member.committed() == dict.fromkeys(range(PARTITIONS), rounds * RECORDS // PARTITIONS)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    [seen] = admin.describe_consumer_groups(["g"])["g"].result(20).members
    return seen.member_id, seen.group_instance_id


def decoded(tools, node):
    """Returns the coordinator's log as kafka-dump-log prints it: (type of the key, key, value). A null value is
    None."""
    rows = []
    for file in segments(node.log_dir, OFFSETS):
        shown = tools.run("kafka-dump-log", "--offsets-decoder", "--files", file)
        for line in shown.lines:
            found = re.search(r"key: (\{.*\}) payload: (.*)$", line)
            if found:
                key, value = json.loads(found[1]), found[2]
                rows.append((key["type"], key["data"], json.loads(value)["data"] if value.startswith("{") else None))
    return rows


def test_member_keeps_its_group_when_its_broker_changes_and_changes_back(node, tools):
    node.give_to_us()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(20)
    member = ConfluentMember(node, "g", "t", instance="i", session_ms=45_000)
    try:
        identity = goes_on(node, member, 1)
        node.kill()
        node.give_to_apache()
        assert goes_on(node, member, 2) == identity
        node.stop()
        node.give_to_us()
        assert goes_on(node, member, 3) == identity
    finally:
        member.close()
    node.stop()
    rows = decoded(tools, node)
    generations = [value["generation"] for kind, _, value in rows if kind == "2" and value]
    assert generations
    assert set(generations) <= {0, 1}  # the empty group, and the only generation with a member
    committed = {}
    for kind, key, value in rows:
        if kind == "1":
            committed.setdefault(key["partition"], []).append(value["offset"])
    assert committed == {
        partition: [rounds * RECORDS // PARTITIONS for rounds in (1, 2, 3)] for partition in range(PARTITIONS)
    }
