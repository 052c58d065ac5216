"""Whole nodes with a wrong id, a wiped, damaged or full disk, or a clock that jumps. Each of these nodes says what to
do, the other nodes continue, and no committed record is lost."""

from __future__ import annotations

import contextlib
import errno

import pytest

from kafkacore.network.client import Disconnected
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import Uuid
from kafkacore.simulation.cluster import DIRECTORY, SimulatedCluster
from kafkacore.simulation.node import SimulatedNode, State
from kafkacore.storage import meta_properties
from kafkacore.storage.meta_properties import MetaProperties
from seeds import SEED
from simulated_clusters import alter_cluster, commit, elected, is_in_every_image

OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
METADATA = f"{DIRECTORY}/__cluster_metadata-0"
DAY_MS = 86_400_000


def change_identity(node: SimulatedNode, **changes: object) -> MetaProperties:
    """Changes the node's meta.properties. Returns the former content."""
    if node.disk.is_dead:
        node.disk.restart(SEED & 0xFFFF)
    found = meta_properties.read(DIRECTORY, node.disk)
    assert found is not None
    meta_properties.write(DIRECTORY, found._replace(**changes), 0, node.disk)
    return found


def failed(cluster: SimulatedCluster, node: SimulatedNode) -> str:
    """Waits until the node fails. Returns its error message."""
    cluster.run_until(lambda: node.state is State.FAILED, 30, f"the end of {node.name}")
    assert node.error is not None
    return str(node.error)


def wait_for_everyone(cluster: SimulatedCluster, text: str) -> None:
    cluster.run_until(lambda: is_in_every_image(cluster, text), 60, "the same image everywhere")


@pytest.mark.parametrize("static", [True, False], ids=["static-voters", "dynamic-voters"])
@pytest.mark.parametrize("role", ["controller", "broker"])
def test_node_of_another_cluster_ends_with_both_sides_named(role: str, static: bool) -> None:
    with SimulatedCluster(SEED, controllers=3, brokers=1, static=static) as cluster:
        stranger = cluster[3 if role == "controller" else 4]
        found = change_identity(stranger, cluster_id=OTHER_CLUSTER)
        cluster.start()
        told = failed(cluster, stranger)
        assert f"{DIRECTORY}/meta.properties: this node has cluster.id={OTHER_CLUSTER}" in told
        others = [each for each in (1, 2, 3) if each != stranger.node_id]
        assert all(f"node-{each}:9093" in told for each in others)
        assert "INCONSISTENT_CLUSTER_ID" in told and "controller.quorum.bootstrap.servers" in told
        commit(cluster, "1000")
        assert all(cluster[each].state is State.RUNNING for each in others)
        change_identity(stranger, cluster_id=found.cluster_id)
        stranger.start()
        commit(cluster, "2000")
        wait_for_everyone(cluster, "2000")
        assert stranger.state is State.RUNNING


def test_node_waits_when_one_controller_refuses_its_cluster_and_the_other_is_off() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        change_identity(cluster[3], cluster_id=OTHER_CLUSTER)
        cluster.start([cluster[1], cluster[3]])
        cluster.run_for(30)
        assert [cluster[each].state for each in (1, 3)] == [State.RUNNING, State.RUNNING]
        cluster[2].start()
        failed(cluster, cluster[3])
        commit(cluster, "1000")


@pytest.mark.parametrize(("node_id", "owner"), [(3, 2), (4, 5)], ids=["controller", "broker"])
def test_directory_of_another_node_is_refused(node_id: int, owner: int) -> None:
    with SimulatedCluster(SEED, controllers=3, brokers=2) as cluster:
        change_identity(cluster[node_id], node_id=owner)
        cluster.start()
        told = failed(cluster, cluster[node_id])
        assert "meta.properties" in told and "node.id" in told
        commit(cluster, "1000")


def test_voter_with_another_directory_id_follows_as_a_new_replica() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        commit(cluster, "1000")
        changed = next(node for node in cluster.controllers if node is not elected(cluster))
        changed.kill()
        change_identity(changed, directory_id=Uuid(b"a new directory!"))
        commit(cluster, "2000")
        changed.start()
        wait_for_everyone(cluster, "2000")
        assert changed.raft is not None
        assert not changed.raft.is_voter


@pytest.mark.parametrize("static", [True, False], ids=["static-voters", "dynamic-voters"])
def test_voter_gets_everything_again_when_its_metadata_log_is_gone(static: bool) -> None:
    with SimulatedCluster(SEED, controllers=3, static=static) as cluster:
        cluster.start()
        for value in ("1000", "2000"):
            commit(cluster, value)
        wiped = next(node for node in cluster.controllers if node is not elected(cluster))
        wiped.kill()
        wiped.disk.restart(SEED & 0xFFFF)
        for name in wiped.disk.list(METADATA):
            wiped.disk.unlink(f"{METADATA}/{name}")
        wiped.start()
        commit(cluster, "3000")
        wait_for_everyone(cluster, "3000")


def with_three_commits(cluster: SimulatedCluster) -> SimulatedNode:
    """Starts the cluster and commits three changes. Returns a standby controller that has all of them."""
    cluster.start()
    for value in ("1000", "2000", "3000"):
        commit(cluster, value)
    standby = next(node for node in cluster.controllers if node is not elected(cluster))
    wait_for_everyone(cluster, "3000")
    return standby


def metadata_segment(node: SimulatedNode) -> str:
    (name,) = (each for each in node.disk.list(METADATA) if each.endswith(".log"))
    return f"{METADATA}/{name}"


def damage_a_third_of_the_way(node: SimulatedNode) -> bytes:
    """Damages a byte at a third of the length of the metadata log. Returns the damaged content."""
    if node.disk.is_dead:
        node.disk.restart(SEED & 0xFFFF)
    path = metadata_segment(node)
    data = bytearray(node.disk.read(path))
    data[len(data) // 3] ^= 0xFF
    node.disk.write(path, bytes(data))
    return bytes(data)


@pytest.mark.parametrize("static", [True, False], ids=["static-voters", "dynamic-voters"])
def test_voter_refuses_to_start_when_committed_records_are_damaged(static: bool) -> None:
    with SimulatedCluster(SEED, controllers=3, static=static) as cluster:
        damaged = with_three_commits(cluster)
        damaged.stop()
        cluster.run_until(lambda: damaged.state is State.OFF, 60, "an orderly stop")
        before = damage_a_third_of_the_way(damaged)
        damaged.start()
        told = failed(cluster, damaged)
        assert f"{metadata_segment(damaged)}: byte " in told and "no whole batch begins at offset " in told
        assert "restore the file" in told and f"remove {METADATA}, and this node gets the log from them" in told
        damaged.disk.restart(SEED & 0xFFFF)
        assert damaged.disk.read(metadata_segment(damaged)) == before
        commit(cluster, "4000")
        for name in damaged.disk.list(METADATA):
            damaged.disk.unlink(f"{METADATA}/{name}")
        damaged.start()
        wait_for_everyone(cluster, "4000")


def test_voter_gets_the_end_of_its_log_again_when_a_crash_may_have_torn_it(caplog: pytest.LogCaptureFixture) -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        damaged = with_three_commits(cluster)
        damaged.kill()  # the log is young, so no file says how much of it was committed
        end = damage_a_third_of_the_way(damaged).rindex(b"3000")
        damaged.start()
        commit(cluster, "4000")
        wait_for_everyone(cluster, "4000")
        assert f"{METADATA}: " in caplog.text and "bytes that belong to no whole batch were cut off" in caplog.text
        path = metadata_segment(damaged)
        assert damaged.disk.read(path)[:end] == elected(cluster).disk.read(path)[:end]


def test_another_controller_leads_when_the_disk_of_the_active_one_is_full() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        commit(cluster, "1000")
        full = elected(cluster)
        full.disk.fail("write", errno.ENOSPC)
        # The seed decides whether the node still answers before it shuts down.
        with contextlib.suppress(Disconnected):
            answer = cluster.ask(full.node_id, alter_cluster("2000"), 5).responses[0]
            # Apache Kafka's controller returns the same error.
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        told = failed(cluster, full)
        assert f"{DIRECTORY} has failed: No space left on device; put that right, and start the node again" in told
        commit(cluster, "2000")
        assert elected(cluster) is not full
        full.disk.restart(SEED & 0xFFFF)
        full.start()
        commit(cluster, "3000")
        wait_for_everyone(cluster, "3000")


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS], ids=["forward", "back"])
def test_clock_that_jumps_changes_neither_the_leader_nor_a_session(jump_ms: int) -> None:
    with SimulatedCluster(SEED, controllers=3, brokers=1) as cluster:
        cluster.start()
        commit(cluster, "1000")
        broker = cluster[4]
        cluster.run_until(lambda: broker.state is State.RUNNING, 60, "a broker")
        active = elected(cluster)
        assert active.raft is not None
        epoch = active.raft.epoch
        for node in cluster:
            node.set_clock(jump_ms=jump_ms)
            cluster.run_for(1)
        commit(cluster, "2000")
        wait_for_everyone(cluster, "2000")
        assert active.is_active_controller and active.raft.epoch == epoch
        image = active.controller_image
        assert image is not None and image.is_active(4)
