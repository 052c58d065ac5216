"""Our broker in a cluster of Apache Kafka 3.9 in ZooKeeper mode. A broker of Apache Kafka is the controller."""

import shutil

import pytest
from kazoo.client import KazooClient

from asking import ask
from kafkacore.protocol.messages import ApiVersionsRequest, CreateTopicsRequest
from quorums import OURS
from zookeeper_cluster import APACHE, COUNT, Load, ZooKeeperCluster, consume, produce, values
from zookeepers import need_zookeeper

pytestmark = [pytest.mark.timeout(240)]


@pytest.fixture
def mixed(tmp_path):
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, {1: APACHE, 2: OURS}) as cluster:
        yield cluster


def test_our_broker_leads_and_follows_when_apache_kafka_controls(mixed, tools_of_either):
    topics = ["--bootstrap-server", mixed.bootstrap]
    tools = tools_of_either[APACHE]
    tools.run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
    mixed.wait_leader("t", 0, 1)
    mixed.wait_leader("t", 1, 2)
    for partition in (0, 1):
        produce(mixed, "t", partition, values(partition))
    for partition in (0, 1):
        assert consume(mixed, "t", partition, COUNT) == values(partition)
        mixed.wait_isr("t", partition, 1, 2)

    # Kills our broker with SIGKILL. Apache Kafka's broker then leads alone.
    mixed.brokers[2].kill()
    mixed.wait_leader("t", 1, 1)
    produce(mixed, "t", 1, values("alone"))
    mixed.brokers[2].start()
    mixed.wait_members([1, 2])
    for partition in (0, 1):
        mixed.wait_isr("t", partition, 1, 2)
    assert mixed.brokers[2].batches("t", 1) == mixed.brokers[1].batches("t", 1)

    described = tools.run("kafka-topics", *topics, "--describe", "--topic", "t").out
    assert "Leader: 1" in described
    tools.run("kafka-leader-election", *topics, "--election-type", "preferred", "--all-topic-partitions")
    mixed.wait_leader("t", 1, 2)
    assert consume(mixed, "t", 1, 2 * COUNT) == values(1) + values("alone")

    tools.run("kafka-topics", *topics, "--delete", "--topic", "t")
    data = mixed.brokers[2].data
    mixed.wait(lambda: not list(data.glob("t-[01]")), "our broker has no log of the deleted topic")


@pytest.mark.parametrize("controller", [1, 2], ids=["Apache Kafka controls", "ours controls"])
def test_our_broker_shows_the_finalized_features_of_apache_kafka_when_their_znode_changes(tmp_path, controller):
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, {1: APACHE, 2: OURS}, control=[2], first=controller) as cluster:
        addresses = [*cluster.addresses.values(), cluster.control_addresses[2]]

        def shown():
            """Returns the epochs and the features that the listeners show, each once."""
            found = set()
            for address in addresses:
                request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
                answer = ask(address, request, 3)
                found.add((answer.finalized_features_epoch, tuple(each.name for each in answer.finalized_features)))
            return found

        client = KazooClient(f"{cluster.zookeeper.connect}/kafka")
        client.start()
        try:
            data, stat = client.get("/feature")
            cluster.wait(lambda: shown() == {(stat.version, ())}, "every listener shows the first epoch")
            disabled = data.replace(b'"status":1', b'"status":0')
            assert disabled != data
            client.set("/feature", disabled)
            cluster.wait(lambda: shown() == {(-1, ())}, "no listener shows an epoch while the znode is disabled")
            client.set("/feature", data)
            cluster.wait(lambda: shown() == {(stat.version + 2, ())}, "every listener shows the new epoch")
        finally:
            client.stop()
            client.close()


@pytest.mark.parametrize("kinds", [{1: OURS, 2: OURS}, {1: OURS, 2: APACHE}], ids=["ours alone", "with Apache Kafka"])
def test_our_controller_leads_a_cluster(tmp_path, tools_of_either, kinds):
    need_zookeeper()
    tools = tools_of_either[APACHE]
    with ZooKeeperCluster(tmp_path, kinds) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
        cluster.wait_leader("t", 0, 1)
        cluster.wait_leader("t", 1, 2)
        for partition in (0, 1):
            produce(cluster, "t", partition, values(partition))
            assert consume(cluster, "t", partition, COUNT) == values(partition)
            cluster.wait_isr("t", partition, 1, 2)

        # Kills the controller with SIGKILL. The other broker takes over both roles.
        cluster.brokers[1].kill()
        cluster.wait(lambda: cluster.controller() == 2, "broker 2 is the controller")
        cluster.wait_leader("t", 0, 2)
        produce(cluster, "t", 0, values("alone"))
        cluster.brokers[1].start()
        cluster.wait_members([1, 2])
        for partition in (0, 1):
            cluster.wait_isr("t", partition, 1, 2)

        # A controlled shutdown of the controller first moves its leaderships away.
        cluster.brokers[2].stop()
        cluster.wait(lambda: cluster.controller() == 1, "broker 1 is the controller")
        cluster.wait_leader("t", 1, 1)
        cluster.brokers[2].start()
        cluster.wait_isr("t", 0, 1, 2)
        assert consume(cluster, "t", 0, 2 * COUNT) == values(0) + values("alone")

        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-leader-election", *topics, "--election-type", "preferred", "--all-topic-partitions")
        cluster.wait_leader("t", 0, 1)
        cluster.wait_leader("t", 1, 2)
        tools.run("kafka-topics", *topics, "--alter", "--topic", "t", "--partitions", "4")
        cluster.wait_leader("t", 3, 1, 2)
        tools.run("kafka-configs", *topics, "--alter", "--topic", "t", "--add-config", "retention.ms=1234567")

        # Any broker can answer, and each broker learns about settings from its own watch.
        def is_described():
            described = tools.run("kafka-configs", *topics, "--describe", "--topic", "t").out
            return "retention.ms=1234567" in described

        cluster.wait(is_described, "brokers describe the new setting")
        tools.run("kafka-topics", *topics, "--delete", "--topic", "t")
        cluster.wait(
            lambda: not [path for member in cluster.brokers.values() for path in member.data.glob("t-?")],
            "no broker has a log of the deleted topic",
        )


def test_every_acknowledged_record_is_read_once_when_the_ensemble_loses_its_leader(tmp_path, tools_of_either):
    need_zookeeper()
    tools = tools_of_either[APACHE]
    with ZooKeeperCluster(tmp_path, {1: OURS, 2: OURS}, {"min.insync.replicas": "2"}, servers=3) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1:2")
        cluster.wait_isr("t", 0, 1, 2)
        with Load(cluster, "t") as load:
            lost = cluster.zookeeper.leader()
            lost.kill()
            cluster.zookeeper.leader()  # the ensemble has another leader now
            # The cluster can make decisions again: it creates a topic and elects the topic's leader.
            tools.run("kafka-topics", *topics, "--create", "--topic", "u", "--replica-assignment", "2:1")
            cluster.wait_isr("u", 0, 1, 2)
            lost.start()
            seen = len(load.acknowledged)
            cluster.wait(lambda: len(load.acknowledged) > seen + COUNT, "records are acknowledged")
        assert cluster.live() == [1, 2]
        assert not load.failed
        assert consume(cluster, "t", 0, load.count) == [b"%d" % number for number in range(load.count)]


@pytest.mark.parametrize("paused", [1, 2], ids=["the controller", "another broker"])
def test_a_broker_comes_back_in_a_new_session_when_it_was_stopped_for_longer(tmp_path, tools_of_either, paused):
    need_zookeeper()
    tools, other = tools_of_either[APACHE], 3 - paused
    with ZooKeeperCluster(tmp_path, {1: OURS, 2: OURS}) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", f"{paused}:{other}")
        produce(cluster, "t", 0, values("before"))
        cluster.brokers[paused].pause()
        try:
            cluster.wait(lambda: leader_seen_by(cluster, other) == other, "the other broker leads")
            produce(cluster, "t", 0, values("meanwhile"), bootstrap=cluster.addresses[other])
        finally:
            cluster.brokers[paused].resume()
        cluster.wait_isr("t", 0, 1, 2)
        cluster.wait_leader("t", 0, other)
        cluster.wait(lambda: cluster.controller() == other or paused == 2, "there is one controller")
        produce(cluster, "t", 0, values("after"))
        expected = values("before") + values("meanwhile") + values("after")
        assert consume(cluster, "t", 0, len(expected)) == expected
        assert cluster.brokers[1].batches("t", 0) == cluster.brokers[2].batches("t", 0)


def leader_seen_by(cluster, node_id):
    found = cluster.partition("t", 0, node_id)
    return None if found is None else found.leader_id


def test_replicas_in_a_dead_log_directory_are_offline_when_their_broker_starts_again(tmp_path):
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, {1: OURS, 2: OURS}) as cluster:
        dead, alive = tmp_path / "dead", tmp_path / "alive"
        cluster.restart_with(2, {"log.dirs": f"{dead},{alive}"})
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
        topic.assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[2, 1])
            for index in range(4)
        ]
        ask(cluster.addresses[1], CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        for index in range(4):
            cluster.wait_leader("t", index, 2)
            produce(cluster, "t", index, values(index, 20))
        cluster.brokers[2].stop()
        lost = {int(path.name.partition("-")[2]) for path in dead.glob("t-*")}
        assert 0 < len(lost) < 4
        shutil.rmtree(dead)
        dead.write_text("")
        cluster.brokers[2].start()
        for index in range(4):
            cluster.wait_isr("t", index, *([1] if index in lost else [1, 2]))
        cluster.wait(
            lambda: {index for index in range(4) if cluster.partition("t", index).offline_replicas == [2]} == lost,
            "the replicas in the dead directory are offline",
        )
        for index in lost:
            assert consume(cluster, "t", index, 20) == values(index, 20)
        assert {int(path.name.partition("-")[2]) for path in alive.glob("t-*")} == set(range(4)) - lost
