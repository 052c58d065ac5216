"""Groups of members of real client libraries. They share partitions, rebalance, take over partitions from one another,
and keep their offsets."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import group_member
from group_members import PATIENCE_S, AioKafkaMember, ConfluentMember, KafkaJsMember, KafkaPythonMember, poll_until

PARTITIONS = 4
RECORDS = 100
MEMBERS = {
    "confluent-range": (ConfluentMember, "range"),
    "confluent-cooperative": (ConfluentMember, "cooperative-sticky"),
    "kafka-python-range": (KafkaPythonMember, "range"),
    "kafka-python-sticky": (KafkaPythonMember, "sticky"),
    "aiokafka-range": (AioKafkaMember, "range"),
    "aiokafka-roundrobin": (AioKafkaMember, "roundrobin"),
}


def fill(broker, topic, first=0):
    """Writes RECORDS records, spread over PARTITIONS partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if not first:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def values(first=0):
    return {b"%d" % number for number in range(first, first + RECORDS)}


def commit_all(members, member, count):
    """Commits what `member` has read, until the group has committed `count` records. On a slow machine a rebalance can
    happen at any time, and the member then reads uncommitted records again."""

    def is_committed():
        member.commit()
        return member.committed() == dict.fromkeys(range(PARTITIONS), count // PARTITIONS)

    poll_until(members, is_committed, f"{count} records are committed")


def describe(broker, group):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(PATIENCE_S)


@pytest.mark.parametrize("kind", MEMBERS)
def test_remaining_member_takes_all_partitions_when_the_other_leaves(broker, topic_name, kind):
    member_class, strategy = MEMBERS[kind]
    fill(broker, topic_name)
    first = member_class(broker, topic_name, topic_name, strategy)
    members = [first]
    try:
        poll_until(members, lambda: set(first.values) == values(), "one member reads everything")
        commit_all(members, first, RECORDS)
        second = member_class(broker, topic_name, topic_name, strategy)
        members.append(second)
        half = PARTITIONS // 2
        poll_until(
            members,
            lambda: len(first.partitions()) == len(second.partitions()) == half,
            "two members have half of the partitions each",
        )
        assert first.partitions() | second.partitions() == set(range(PARTITIONS))
        fill(broker, topic_name, RECORDS)
        everything = values() | values(RECORDS)
        poll_until(members, lambda: set(first.values + second.values) == everything, "both read on")
        members.remove(first)
        first.close()
        poll_until(members, lambda: len(second.partitions()) == PARTITIONS, "who stays has all partitions")
    finally:
        for member in members:
            member.close()


def test_static_member_keeps_its_partitions_when_it_restarts(broker, topic_name):
    fill(broker, topic_name)
    names = ("a", "b")
    members = {name: ConfluentMember(broker, topic_name, topic_name, instance=name) for name in names}
    try:
        poll_until(
            list(members.values()),
            lambda: {len(each.partitions()) for each in members.values()} == {2},
            "two members have half of the partitions each",
        )
        before = {name: member.partitions() for name, member in members.items()}
        members["b"].close()  # a static member does not send LeaveGroup when it closes
        assert describe(broker, topic_name).state == ConsumerGroupState.STABLE
        members["b"] = ConfluentMember(broker, topic_name, topic_name, instance="b")
        poll_until(list(members.values()), lambda: len(members["b"].partitions()) == 2, "b is back")
        assert {name: member.partitions() for name, member in members.items()} == before
        shown = describe(broker, topic_name)
        assert {each.group_instance_id for each in shown.members} == set(names)
    finally:
        for member in members.values():
            member.close()


def test_group_takes_over_partitions_when_a_member_dies(fresh_broker, topic_name):
    broker = fresh_broker({"group.min.session.timeout.ms": "500"})
    fill(broker, topic_name)
    survivor = ConfluentMember(broker, "g", topic_name, session_ms=700)
    command = [sys.executable, Path(group_member.__file__), broker.bootstrap, "g", topic_name, "700"]
    with subprocess.Popen(command) as victim:
        try:
            poll_until([survivor], lambda: len(survivor.partitions()) == 2, "two members share")
        finally:
            victim.kill()
    try:
        poll_until([survivor], lambda: len(survivor.partitions()) == PARTITIONS, "who lives has all partitions")
        poll_until([survivor], lambda: set(survivor.values) == values(), "who lives reads everything")
    finally:
        survivor.close()


def test_kafkajs_takes_over_when_a_member_dies_and_resumes_after_a_restart(fresh_broker, topic_name):
    broker = fresh_broker({"group.min.session.timeout.ms": "500"})
    fill(broker, topic_name)
    survivor, victim = (KafkaJsMember(broker, "g", topic_name, session_ms=700) for _ in range(2))
    members = [survivor, victim]
    try:
        poll_until(members, lambda: len(survivor.partitions()) == len(victim.partitions()) == 2, "two members share")
        members.remove(victim)
        victim.kill()
        poll_until(members, lambda: len(survivor.partitions()) == PARTITIONS, "who lives has all partitions")
        poll_until(members, lambda: set(survivor.values) == values(), "who lives reads everything")
        commit_all(members, survivor, RECORDS)
        read = len(survivor.values)
        broker.kill()
        broker.start()
        fill(broker, topic_name, RECORDS)
        poll_until(members, lambda: set(survivor.values[read:]) >= values(RECORDS), "who lives goes on")
        assert set(survivor.values[read:]) == values(RECORDS), "committed records must not be read again"
        commit_all(members, survivor, 2 * RECORDS)
    finally:
        for member in members:
            member.close()


def test_groups_and_offsets_survive_when_the_node_is_killed(fresh_broker, topic_name):
    broker = fresh_broker()
    fill(broker, topic_name)
    member = ConfluentMember(broker, "g", topic_name)
    try:
        poll_until([member], lambda: len(member.values) >= RECORDS, "everything is read")
        commit_all([member], member, RECORDS)
        broker.kill()
        broker.start()
        shown = describe(broker, "g")
        assert (shown.state, len(shown.members)) == (ConsumerGroupState.STABLE, 1)
        fill(broker, topic_name, RECORDS)
        poll_until([member], lambda: set(member.values) == values() | values(RECORDS), "the member goes on")
        commit_all([member], member, 2 * RECORDS)
    finally:
        member.close()
    late = ConfluentMember(broker, "g", topic_name)
    try:
        poll_until([late], lambda: len(late.partitions()) == PARTITIONS, "another one joins")
        assert late.committed() == dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS)
        assert late.values == []
    finally:
        late.close()
