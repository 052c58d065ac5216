"""Replicas whose disk fails, is emptied, or has diverging records, and replicas that were paused for long. The other
replicas continue, and no record that all of them have acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.protocol.errors import ErrorCode
from kafkacore.simulation.cluster import DIRECTORY
from kafkacore.testing import Cluster
from kafkacore.testing.cluster import ClusterNode
from kafkacore.testing.simulated_cluster import SimulatedBackend
from kit_replicas import FAST, TWO_OF_THREE, append, produce, row, values, wait_for_isr
from seeds import SEED

LOG = f"{DIRECTORY}/orders-0"


@pytest.fixture
def new() -> Iterator[Callable[..., Cluster]]:
    """Returns a function that makes a simulated cluster with one controller. Its partition orders-0 has a replica on
    each broker."""
    made: list[Cluster] = []

    def make(brokers: int, **configs: Any) -> Cluster:
        cluster = Cluster(controllers=1, brokers=brokers, seed=SEED, configs=FAST)
        made.append(cluster)
        cluster.create_topic("orders", replication_factor=brokers, configs=configs)
        wait_for_isr(cluster, "orders", *cluster.brokers)
        return cluster

    yield make
    for each in made:
        each.close()


def disk_of(node: ClusterNode) -> SimulatedDisk:
    backend = node.cluster._backend
    assert isinstance(backend, SimulatedBackend)
    return backend.cluster[node.node_id].disk


def others(cluster: Cluster, *nodes: ClusterNode) -> list[ClusterNode]:
    return [each for each in cluster.brokers.values() if each not in nodes]


def log_of(node: ClusterNode) -> tuple[int, int, bytes]:
    """Returns the high watermark, the end offset and the bytes of the replica on this node."""
    replica = node.server.broker.replicas.by_name("orders", 0)
    assert replica is not None
    return replica.high_watermark, replica.end_offset, disk_of(node).read(f"{LOG}/{0:020d}.log")


def wait_until_equal(cluster: Cluster, end_offset: int) -> None:
    def is_equal() -> bool:
        logs = [log_of(node) for node in cluster.brokers.values()]
        return logs.count(logs[0]) == len(logs) and logs[0][:2] == (end_offset, end_offset)

    cluster.wait_until(is_equal, f"equal logs up to {end_offset}")


def repair(node: ClusterNode) -> None:
    for kind in ("write", "sync"):
        disk_of(node).fail(kind, 0)


def test_another_replica_leads_when_the_disk_under_the_leader_fails(new: Callable[..., Cluster]) -> None:
    cluster = new(3, **TWO_OF_THREE)
    produce(cluster, "orders", "before")
    leader = cluster.leader("orders")
    for kind in ("write", "sync"):
        disk_of(leader).fail(kind)
    produce(cluster, "orders", "after")
    assert cluster.leader("orders") is not leader
    assert values(cluster, "orders", 2) == ["before", "after"]
    cluster.wait_until(lambda: leader.state == "failed", "the end of a broker that has no other disk")
    repair(leader)
    leader.start()
    wait_for_isr(cluster, "orders", *cluster.brokers)
    wait_until_equal(cluster, 2)


def test_leader_goes_on_when_the_disk_under_a_follower_fails(new: Callable[..., Cluster]) -> None:
    cluster = new(3, **TWO_OF_THREE)
    leader = cluster.leader("orders")
    broken = others(cluster, leader)[0]
    for kind in ("write", "sync"):
        disk_of(broken).fail(kind)
    produce(cluster, "orders", "tea", "milk")
    assert cluster.leader("orders") is leader
    wait_for_isr(cluster, "orders", *(each.node_id for each in others(cluster, broken)))
    cluster.wait_until(lambda: broken.state == "failed", "the end of a broker that has no other disk")
    repair(broken)
    broken.start()
    wait_for_isr(cluster, "orders", *cluster.brokers)
    wait_until_equal(cluster, 2)


def test_acknowledged_record_is_on_each_disk_when_each_record_must_be_synced(new: Callable[..., Cluster]) -> None:
    cluster = new(2, **{"flush.messages": 1})
    produce(cluster, "orders", "first")
    wait_until_equal(cluster, 1)
    [follower] = others(cluster, cluster.leader("orders"))
    disk_of(follower).pace("sync", 300_000)
    produce(cluster, "orders", "second")
    for node in cluster.brokers.values():
        *_, written = log_of(node)
        assert b"second" in written
        assert disk_of(node).synced(f"{LOG}/{0:020d}.log") == written
    wait_until_equal(cluster, 2)


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_broker_gets_every_record_again_when_its_log_was_removed(new: Callable[..., Cluster], which: str) -> None:
    cluster = new(3, **TWO_OF_THREE)
    produce(cluster, "orders", "tea", "milk")
    wait_until_equal(cluster, 2)
    leader = cluster.leader("orders")
    emptied = leader if which == "leader" else others(cluster, leader)[0]
    emptied.kill()
    disk = disk_of(emptied)
    if disk.is_dead:
        disk.restart(SEED & 0xFFFF)
    for name in disk.list(LOG):
        disk.unlink(f"{LOG}/{name}")
    disk.remove_directory(LOG)
    disk.sync_directory(DIRECTORY)
    wait_for_isr(cluster, "orders", *(each.node_id for each in others(cluster, emptied)))
    emptied.start()
    wait_for_isr(cluster, "orders", *cluster.brokers)
    wait_until_equal(cluster, 2)
    assert values(cluster, "orders", 2) == ["tea", "milk"]


def test_partition_waits_for_a_replica_of_its_isr_when_all_are_gone(new: Callable[..., Cluster]) -> None:
    cluster = new(2)
    first = cluster.leader("orders")
    [second] = others(cluster, first)
    second.kill()
    wait_for_isr(cluster, "orders", first.node_id)
    produce(cluster, "orders", "only on one")
    first.kill()
    cluster.wait_until(lambda: row(cluster, "orders").leader == -1, "a partition without a leader")
    second.start()
    cluster.run_for(5)
    assert row(cluster, "orders").leader == -1, "a replica that lacks records must not lead"
    assert append(second, "orders", "refused") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    first.start()
    wait_for_isr(cluster, "orders", *cluster.brokers)
    assert values(cluster, "orders", 1) == ["only on one"]
    wait_until_equal(cluster, 1)


def test_diverged_log_is_cut_when_its_leader_returns_after_an_unclean_election(new: Callable[..., Cluster]) -> None:
    cluster = new(2, **{"unclean.leader.election.enable": "true"})
    produce(cluster, "orders", "on both")
    wait_until_equal(cluster, 1)
    first = cluster.leader("orders")
    [second] = others(cluster, first)
    second.kill()
    wait_for_isr(cluster, "orders", first.node_id)
    produce(cluster, "orders", "given up", "given up too")
    first.kill()
    second.start()
    assert cluster.leader("orders") is second
    produce(cluster, "orders", "new")
    first.start()
    wait_for_isr(cluster, "orders", *cluster.brokers)
    wait_until_equal(cluster, 2)
    assert values(cluster, "orders", 2) == ["on both", "new"]


def test_leader_acknowledges_nothing_when_it_wakes_from_a_pause_and_another_leads(new: Callable[..., Cluster]) -> None:
    cluster = new(3, **TWO_OF_THREE)
    produce(cluster, "orders", "before")
    paused = cluster.leader("orders")
    paused.pause()
    cluster.wait_until(lambda: row(cluster, "orders").leader not in (paused.node_id, -1), "another leader")
    leader = cluster.brokers[row(cluster, "orders").leader]
    cluster.wait_until(lambda: append(leader, "orders", "meanwhile") == ErrorCode.NONE, "an acknowledgement")
    paused.resume()
    assert append(paused, "orders", "refused") != ErrorCode.NONE
    wait_for_isr(cluster, "orders", *cluster.brokers)
    produce(cluster, "orders", "after")
    wait_until_equal(cluster, 3)
    assert values(cluster, "orders", 3) == ["before", "meanwhile", "after"]
