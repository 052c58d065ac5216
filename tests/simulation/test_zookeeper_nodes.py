"""Whole nodes in ZooKeeper mode in the simulated world."""

import os

import pytest

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.config import BrokerConfig
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.made_ids import is_made
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.coordinator_keys import java_hash
from kafkacore.server.handlers.broker.find_coordinator import GROUP, TRANSACTION
from kafkacore.server.zookeeper.control_requests import PARTITIONS_AT_ONCE
from kafkacore.simulation.cluster import running
from kafkacore.simulation.producing import produce_request
from kafkacore.simulation.trial import ZOOKEEPER, try_seed
from kafkacore.simulation.zookeeper_cluster import SimulatedZooKeeperCluster
from kafkacore.simulation.zookeeper_faults import ADMINISTRATOR
from kafkacore.simulation.zookeeper_server import Transaction
from kafkacore.storage.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Create
from seeds import SEED
from simulated_clusters import told_with_other_orders_of_sets

TOPIC_ID = Uuid(b"t" * 16)
RUNS = int(os.environ.get("KAFKACORE_SIMULATED_CLUSTERS", "8"))


def started(seed=SEED, brokers=3, **configs):
    named = {name.replace("_", "."): value for name, value in configs.items()}
    configs = {"zookeeper.session.timeout.ms": "3000"} | named
    cluster = SimulatedZooKeeperCluster(seed, brokers=brokers, configs=configs)
    cluster.start()
    cluster.run_until(lambda: running(cluster) and cluster.active_controller is not None, 60, "a running cluster")
    cluster.run_for(1)  # until the controller has sent the list of all brokers to each broker
    return cluster


@pytest.mark.parametrize("number", range(RUNS))
def test_cluster_keeps_its_promises_when_nodes_links_and_zookeeper_fail(number):
    verdict = try_seed(SEED * 1_000 + number, 40, ZOOKEEPER)
    assert verdict.problem is None, verdict.line()


STORY = """
from kafkacore.simulation.zookeeper_run import ZooKeeperRun
run = ZooKeeperRun({seed}, 10, 3, 3)
run.run()
print(run.cluster.trace_hash)
"""


def test_run_repeats_itself_when_sets_have_another_order():
    told = told_with_other_orders_of_sets(STORY.format(seed=SEED), os.path.dirname(__file__), 100)
    assert told[0] == told[1]


def create(cluster, topic, replicas, partitions=1, settings=()):
    made = m.CreateTopicsRequest
    assigned = [
        made.CreatableReplicaAssignment(partition_index=each, broker_ids=replicas) for each in range(partitions)
    ]
    configs = [made.CreatableTopicConfig(name=name, value=value) for name, value in settings]
    topics = [
        made.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned, configs=configs)
    ]
    answer = cluster.ask(cluster.active_controller.node_id, made(topics=topics, timeout_ms=5_000))
    assert answer.topics[0].error_code == ErrorCode.NONE


def restart_one(cluster):
    """Pauses the controller and restarts another broker. Returns both. The restarted broker need not wait until its
    former session expires, because the simulated ZooKeeper ends that session at once."""
    controller = cluster.active_controller
    restarted = next(node for node in cluster if node is not controller)
    kill(cluster, restarted)
    controller.pause()
    restarted.start()
    cluster.run_until(lambda: running([restarted]), 60, "the restarted broker")
    return controller, restarted


def metadata_of(*topics):
    wanted = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def test_broker_that_has_just_started_answers_metadata_when_the_controller_has_told_it_the_topics():
    with started() as cluster:
        create(cluster, "events", [1, 2, 3])
        controller, restarted = restart_one(cluster)
        client = cluster.client()
        asked = client.start(client.send(restarted.node_id, metadata_of("events", "unknown")))
        cluster.run_for(1)
        assert not asked.done()
        controller.resume()
        cluster.run_until(asked.done, 20, "an answer")
        answer = asked.result()
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "events": ErrorCode.NONE, "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }  # fmt: skip


def test_broker_that_has_just_started_answers_metadata_when_it_has_taken_over_every_topic():
    with started() as cluster:
        create(cluster, "large", [cluster.active_controller.node_id], PARTITIONS_AT_ONCE)
        create(cluster, "last", [cluster.active_controller.node_id])
        controller, restarted = restart_one(cluster)
        client = cluster.client()
        asked = client.start(client.send(restarted.node_id, metadata_of("last")))
        cluster.run_for(1)
        controller.resume()
        cluster.run_until(asked.done, 20, "an answer")
        assert [topic.error_code for topic in asked.result().topics] == [ErrorCode.NONE]


def test_broker_answers_metadata_at_once_when_the_cluster_has_no_topics():
    with started() as cluster:
        _, restarted = restart_one(cluster)
        answer = cluster.ask(restarted.node_id, metadata_of("unknown"), 1)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fetchers_use_the_new_broker_epoch_when_the_broker_registers_again():
    """The controller is paused, so it sends no request for the new registration."""
    with started() as cluster:
        controller = cluster.active_controller
        follower = next(node for node in cluster if node is not controller)
        create(cluster, "events", [controller.node_id, follower.node_id])
        broker, epochs = follower.zookeeper_broker, []
        cluster.run_until(lambda: broker.fetchers._fetchers, 20, "a fetcher")
        for fetcher in broker.fetchers._fetchers.values():
            fetcher.registered = epochs.append
        controller.pause()
        cluster.zookeeper.expire(cluster.session_of(follower))
        cluster.run_until(lambda: epochs, 2, "the new epoch in the fetchers")
        assert epochs == [cluster.zookeeper.tree.nodes[paths.broker(follower.node_id)].czxid]


def test_broker_learns_of_topics_when_a_request_to_its_former_registration_is_stuck():
    with started() as cluster:
        controller = cluster.active_controller
        broker = next(node for node in cluster if node is not controller)
        cluster.network.stall(broker.machine.name)
        create(cluster, "events", [controller.node_id])
        cluster.zookeeper.expire(cluster.session_of(broker))
        roots = broker.zookeeper_broker._roots
        cluster.run_until(lambda: roots.view.image.topic("events"), 10, "the topic on the broker")


@pytest.mark.parametrize(("topic", "key_type"), [(OFFSETS_TOPIC, GROUP), (TRANSACTIONS_TOPIC, TRANSACTION)])
def test_keys_keep_their_partitions_when_the_last_partition_of_the_topic_gets_its_state_late(topic, key_type):
    """An UpdateMetadata leaves out a partition that has no state yet."""
    with started() as cluster:
        controller = cluster.active_controller
        asked, late = [node for node in cluster if node is not controller]
        kill(cluster, late)
        create_with_replicas(cluster, topic, [[controller.node_id], [controller.node_id], [late.node_id]])
        keys = {java_hash(key) % 3: key for key in "abc"}

        def coordinators():
            request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[keys[index] for index in range(3)])
            return [each.node_id for each in cluster.ask(asked.node_id, request).coordinators]

        def has_topic():
            return asked.zookeeper_broker.view.topic(topic) is not None

        cluster.run_until(has_topic, 10, "the topic on the broker")
        assert coordinators() == [controller.node_id, controller.node_id, -1]
        kill(cluster, asked)
        asked.start()
        cluster.run_until(lambda: running([asked]) and has_topic(), 60, "the restarted broker")
        assert coordinators() == [controller.node_id, controller.node_id, -1]
        late.start()
        cluster.run_until(lambda: coordinators()[2] == late.node_id, 30, "a leader of the last partition")
        assert coordinators() == [controller.node_id, controller.node_id, late.node_id]


def kill(cluster, node):
    """Kills a broker and ends its session."""
    session_id = cluster.session_of(node)
    node.kill()
    cluster.zookeeper.expire(session_id)


def create_with_replicas(cluster, topic, replicas):
    """Writes a topic to ZooKeeper with the given replicas of each partition."""
    assigned = {index: znodes.Assignment(each) for index, each in enumerate(replicas)}
    data = znodes.encode_topic(znodes.TopicAssignment(TOPIC_ID, assigned))
    cluster.zookeeper.commit(Transaction(ADMINISTRATOR, Create(paths.topic(topic), data)))


def test_a_topic_keeps_its_settings_and_its_isr_changes_when_a_newer_controller_gives_it_an_id():
    """The old controller is cut off while a leader asks it for an ISR without the follower, which is paused. The new
    controller gives the topic an id in the same leader epoch."""
    with started(
        brokers=4,
        zookeeper_session_timeout_ms="9000",
        inter_broker_protocol_version="2.7",
        replica_lag_time_max_ms="1000",
    ) as cluster:
        controller = cluster.active_controller
        newer, leader, follower = [node for node in cluster if node is not controller]
        kill(cluster, newer)
        newer.config = BrokerConfig({**newer.config.static, "inter.broker.protocol.version": "3.9"})
        newer.start()
        cluster.run_until(lambda: running([newer]), 60, "the restarted broker")
        create(cluster, "events", [leader.node_id, follower.node_id], settings=[("retention.ms", "7")])
        broker = leader.zookeeper_broker
        cluster.run_until(lambda: broker.roles.topic("events"), 10, "the topic on its leader")
        assert is_made(broker.roles.topic("events").topic_id)
        follower.pause()
        cluster.ask(leader.node_id, produce_request("events", 0, a_batch(), 1_000, 1))
        controller.pause()
        log = broker.replicas.by_name("events", 0)
        cluster.run_until(lambda: log.is_proposing, 10, "a proposal")
        leader.pause()
        cluster.zookeeper.expire(cluster.session_of(controller))
        cluster.run_until(lambda: cluster.active_controller is newer, 30, "the new controller")
        leader.resume()
        cluster.run_until(lambda: not is_made(broker.roles.topic("events").topic_id), 10, "the id")
        assert log.is_proposing
        for image in (broker.roles, broker.view):
            assert image.topic_overrides("events") == {"retention.ms": "7"}
        controller.resume()
        shrunk = (leader.node_id,)
        cluster.run_until(
            lambda: broker.roles.partition(broker.roles.topic("events"), 0).isr == shrunk, 10, "the leader's new ISR"
        )
        assert broker.isr_counts.shrinks == 1
        assert isr(cluster) == [leader.node_id]
        follower.resume()
        cluster.run_until(lambda: isr(cluster) == sorted([leader.node_id, follower.node_id]), 20, "the ISR")
        assert log.leader_epoch == 0


def a_batch():
    builder = RecordBatchBuilder()
    builder.append(1, b"k", b"v")
    return bytes(builder.build())


def isr(cluster):
    """Returns the ISR of the topic's only partition, sorted, as ZooKeeper has it."""
    return sorted(znodes.decode_state(cluster.zookeeper.tree.nodes[paths.partition_state("events", 0)].data).isr)
