"""Replicated partitions of a `Cluster`, in real time and in a simulated world with a seed. No acknowledged record is
lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode, NotLeaderOrFollowerError
from kafkacore.protocol.messages import (
    ElectLeadersRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafkacore.testing import Cluster
from kafkacore.testing.cluster import ClusterNode
from kit_replicas import FAST, TWO_OF_THREE, append, produce, row, values, wait_for_isr

REAL = None


@pytest.fixture(params=[REAL, 7], ids=["real", "simulated"])
def new(request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """Returns a function that makes clusters of either kind. They end with the test."""
    made: list[Cluster] = []

    def make(*arguments: Any, more: Mapping[str, Any] | None = None, **named: Any) -> Cluster:
        made.append(Cluster(*arguments, seed=request.param, configs={**FAST, **(more or {})}, **named))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_record_is_acknowledged_and_on_every_replica_when_acks_is_all(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3)
    cluster.create_topic("orders", replication_factor=3, configs=TWO_OF_THREE)
    produce(cluster, "orders", "tea", "milk")
    wait_for_isr(cluster, "orders", 1, 2, 3)
    for node in cluster:
        replica = node.server.broker.replicas.by_name("orders", 0)
        assert replica is not None
        cluster.wait_until(lambda replica=replica: replica.high_watermark == 2, f"two records on node {node.node_id}")
        assert replica.end_offset == 2


def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3)
    cluster.create_topic("orders", replication_factor=3, configs=TWO_OF_THREE)
    before = [f"before {number}" for number in range(20)]
    produce(cluster, "orders", *before)
    killed = cluster.leader("orders")
    killed.kill()
    cluster.wait_until(lambda: cluster.leader("orders") is not killed, "another leader")
    produce(cluster, "orders", "after")
    assert set(values(cluster, "orders", 21)) == {*before, "after"}
    killed.start()
    wait_for_isr(cluster, "orders", 1, 2, 3)
    replica = killed.server.broker.replicas.by_name("orders", 0)
    assert replica is not None
    assert replica.role == "follower"
    cluster.wait_until(lambda: replica.end_offset >= 21, "the record that the killed node missed")


def test_follower_leaves_the_isr_when_it_is_gone_and_joins_when_it_is_back(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3)
    cluster.create_topic("orders", replication_factor=3, configs=TWO_OF_THREE)
    wait_for_isr(cluster, "orders", 1, 2, 3)
    leader = cluster.leader("orders")
    gone = next(node for node in cluster if node is not leader)
    gone.kill()
    wait_for_isr(cluster, "orders", *[node.node_id for node in cluster if node is not gone])
    produce(cluster, "orders", "tea")
    gone.start()
    wait_for_isr(cluster, "orders", 1, 2, 3)


def test_acks_all_is_refused_when_the_isr_is_below_its_minimum(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=1, brokers=2)
    cluster.create_topic("orders", replication_factor=2, configs=TWO_OF_THREE)
    produce(cluster, "orders", "tea")
    leader = cluster.leader("orders")
    other = next(node for node in cluster.brokers.values() if node is not leader)
    other.kill()
    replica = leader.server.broker.replicas.by_name("orders", 0)
    assert replica is not None
    cluster.wait_until(lambda: not any(each.in_sync for each in replica.followers()), "a leader alone in its ISR")
    assert append(leader, "orders", "juice") == ErrorCode.NOT_ENOUGH_REPLICAS
    other.start()
    produce(cluster, "orders", "milk")
    assert values(cluster, "orders", 2) == ["tea", "milk"]


def test_every_partition_gets_a_leader_when_one_of_many_leaders_is_killed(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3)
    cluster.create_topic("orders", 30, replication_factor=3, configs=TWO_OF_THREE)
    for partition in range(30):
        cluster.wait_until(lambda at=partition: len(row(cluster, "orders", at).isr) == 3, "all replicas in the ISR")
    killed = next(node for node in cluster if node is not cluster.controller.active)
    killed.kill()
    left = {node.node_id for node in cluster if node is not killed}
    cluster.wait_until(
        lambda: all(row(cluster, "orders", each).leader in left for each in range(30)), "leaders for all partitions"
    )

    def takes_its_first_record(partition: int) -> bool:
        try:
            return cluster.produce("orders", "tea", partition=partition) == 0
        except NotLeaderOrFollowerError:
            return False  # the new leader does not know its role yet

    for partition in range(30):
        cluster.wait_until(lambda at=partition: takes_its_first_record(at), f"a record in partition {partition}")


def test_cleanly_stopped_node_hands_over_and_comes_back(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3)
    cluster.create_topic("orders", replication_factor=3, configs=TWO_OF_THREE)
    wait_for_isr(cluster, "orders", 1, 2, 3)
    produce(cluster, "orders", "tea")
    leader = cluster.leader("orders")
    leader.stop()
    produce(cluster, "orders", "milk")
    leader.start()
    wait_for_isr(cluster, "orders", 1, 2, 3)
    assert values(cluster, "orders", 2) == ["tea", "milk"]


GROUP = "readers"


def coordinator(cluster: Cluster) -> ClusterNode:
    """Returns the running node that coordinates the group, according to the running nodes."""

    def find() -> ClusterNode | None:
        asked = next(node for node in cluster if node.is_running)
        [found] = asked.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), version=4).coordinators
        node = cluster.nodes.get(found.node_id) if not found.error_code else None
        return node if node is not None and node.is_running else None

    found: ClusterNode = cluster.wait_until(find, "a coordinator")
    return found


def commit(cluster: Cluster, offset: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])]

    def committed() -> bool:
        answer = coordinator(cluster).ask(OffsetCommitRequest(group_id=GROUP, topics=topics), version=8)
        return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NONE)

    cluster.wait_until(committed, f"the commit of {offset}")


def committed_offset(node: ClusterNode) -> int | ErrorCode:
    asked = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
    [told] = node.ask(OffsetFetchRequest(groups=[group]), version=8).groups
    return ErrorCode(told.error_code) if told.error_code else told.topics[0].partitions[0].committed_offset


ONE_PARTITION = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 3}


def test_group_keeps_its_offsets_when_its_coordinator_is_killed(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3, more=ONE_PARTITION)
    cluster.create_topic("orders")
    commit(cluster, 7)
    assert len(row(cluster, "__consumer_offsets").replicas) == 3
    killed = coordinator(cluster)
    killed.kill()
    cluster.wait_until(lambda: coordinator(cluster) is not killed, "another coordinator")
    cluster.wait_until(lambda: committed_offset(coordinator(cluster)) == 7, "the offset from before")
    commit(cluster, 8)
    killed.start()
    cluster.wait_until(lambda: committed_offset(coordinator(cluster)) == 8, "the newest offset")


def test_coordinator_forgets_its_former_life_when_it_moves_away_and_back(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=3, more=ONE_PARTITION)
    cluster.create_topic("orders")
    commit(cluster, 7)
    first = coordinator(cluster)
    wait_for_isr(cluster, "__consumer_offsets", 1, 2, 3)
    first.restart()
    second = coordinator(cluster)
    assert second is not first
    assert committed_offset(first) == ErrorCode.NOT_COORDINATOR
    commit(cluster, 8)
    wait_for_isr(cluster, "__consumer_offsets", 1, 2, 3)
    partitions = ElectLeadersRequest.TopicPartitions(topic="__consumer_offsets", partitions=[0])
    second.ask(ElectLeadersRequest(election_type=0, topic_partitions=[partitions], timeout_ms=10_000))
    cluster.wait_until(lambda: coordinator(cluster) is first, "the preferred leader")
    cluster.wait_until(lambda: committed_offset(first) == 8, "the newest offset")
    cluster.wait_until(lambda: committed_offset(second) == ErrorCode.NOT_COORDINATOR, "the second coordinator to end")


def test_leader_is_awaited_when_it_does_not_know_yet_that_it_leads(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=1, brokers=3)
    cluster.create_topic("orders", replication_factor=3)
    first = cluster.leader("orders")
    first.restart()
    members = [node.node_id for node in cluster.brokers.values()]
    wait_for_isr(cluster, "orders", *members)
    second = cluster.leader("orders")
    assert second is not first
    cluster.cut([1], [first.node_id])
    partitions = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])
    cluster[1].ask(ElectLeadersRequest(election_type=0, topic_partitions=[partitions], timeout_ms=10_000))
    cluster.wait_until(lambda: row(cluster, "orders").leader == first.node_id, "the preferred leader")
    cluster.wait_until(lambda: not second.leads("orders"), "the former leader to resign")
    assert not first.leads("orders")
    with pytest.raises(TimeoutError, match="a leader of orders-0"):
        cluster.wait_until(lambda: cluster._leader("orders", 0), "a leader of orders-0", limit_s=0.2)
    cluster.heal()
    assert cluster.leader("orders").leads("orders")
    cluster.produce("orders", "tea")
