"""Whole nodes in a cluster in which a second node has the same id, a peer sends garbage, or a snapshot never arrives
complete. Each node says what to do or continues, and no committed record is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.roles import Follower
from kafkacore.simulation.cluster import CONFIGS, CONTROLLER_PORT, DIRECTORY, SimulatedCluster
from kafkacore.simulation.network import End
from kafkacore.simulation.node import SimulatedNode, State
from kafkacore.storage.format import FormatOptions, format_directories
from seeds import SEED
from simulated_clusters import commit, elected, is_in_every_image

# Each batch is larger than this limit. So every change makes a snapshot, and no node keeps the log below it.
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.bytes": "1",
    "controller.quorum.fetch.snapshot.max.bytes": "150",  # a download takes many requests
}


def wait_for_everyone(cluster: SimulatedCluster, text: str) -> None:
    cluster.run_until(lambda: is_in_every_image(cluster, text), 60, "the same image everywhere")


def standby_of(cluster: SimulatedCluster) -> SimulatedNode:
    active = elected(cluster)
    return next(node for node in cluster.controllers if node is not active)


def test_second_broker_with_the_id_of_a_running_one_ends_and_the_first_stays() -> None:
    with SimulatedCluster(SEED, controllers=1, brokers=2, of_node={3: {"node.id": "2"}}) as cluster:
        first, second = cluster[2], cluster[3]
        second.name = "node-3"  # another machine, whose node has the same id
        cluster.start([cluster[1], first])
        cluster.run_until(lambda: first.state is State.RUNNING, 60, "the first broker")
        image = cluster[1].controller_image
        assert image is not None
        epoch = image.brokers[2].epoch
        second.start()
        cluster.run_until(lambda: second.state is State.FAILED, 120, "the end of the second broker")
        told = str(second.error)
        assert "DUPLICATE_BROKER_REGISTRATION. Another node with this node.id is running. Stop it" in told
        image = cluster[1].controller_image
        assert image is not None
        assert first.state is State.RUNNING and image.brokers[2].epoch == epoch and image.is_active(2)


def cut_short(data: bytes, random: Random) -> bytes:
    kept = random.randrange(4, len(data))
    return (kept - 4).to_bytes(4, "big") + data[4:kept]


def made_longer(data: bytes, random: Random) -> bytes:
    more = random.randbytes(random.randrange(1, 50))
    return (len(data) + len(more) - 4).to_bytes(4, "big") + data[4:] + more


def huge(data: bytes, random: Random) -> bytes:
    return b"\x7f\xff\xff\xff" + data[4:]


def negative(data: bytes, random: Random) -> bytes:
    return b"\xff\xff\xff\xfe" + data[4:]


def of_another_request(data: bytes, random: Random) -> bytes:
    return data[:4] + random.randbytes(4) + data[8:]


def spoil_answers(
    monkeypatch: pytest.MonkeyPatch, is_spoilt: Callable[[End, bytes], bool], spoil: Callable[[bytes], bytes]
) -> list[int]:
    """From now on, damages the answers of the controllers for which `is_spoilt` is true. Returns a list of the sizes of
    the damaged answers."""
    receive, damaged = End.receive, []

    def received(end: End, data: bytes) -> None:
        if end.there[1] == CONTROLLER_PORT and len(data) > 8 and is_spoilt(end, data):
            damaged.append(len(data))
            data = spoil(data)
        receive(end, data)

    monkeypatch.setattr(End, "receive", received)
    return damaged


@pytest.mark.parametrize("damage", [cut_short, made_longer, huge, negative, of_another_request])
@pytest.mark.parametrize("static", [True, False], ids=["static-voters", "dynamic-voters"])
def test_nodes_outlive_a_controller_that_answers_garbage(
    damage: Callable[[bytes, Random], bytes], static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SimulatedCluster(SEED, controllers=3, brokers=1, static=static) as cluster:
        cluster.start()
        commit(cluster, "1000")
        cluster.run_until(lambda: cluster[4].state is State.RUNNING, 60, "a broker")
        hostile, random = elected(cluster).name, Random(SEED)
        with monkeypatch.context() as for_a_while:
            damaged = spoil_answers(
                for_a_while, lambda end, data: end.there[0] == hostile, lambda data: damage(data, random)
            )
            cluster.run_for(20)
            assert len(damaged) > 10
            assert [node.state for node in cluster] == [State.RUNNING] * 4
        commit(cluster, "2000")
        wait_for_everyone(cluster, "2000")
        assert [node.state for node in cluster] == [State.RUNNING] * 4


def far_behind(cluster: SimulatedCluster) -> SimulatedNode:
    """Returns a standby that begins to download a snapshot, because the log of every other node begins above the end of
    its log."""
    cluster.start()
    commit(cluster, "1")
    behind = standby_of(cluster)
    wait_for_everyone(cluster, "1")
    behind.stop()
    cluster.run_until(lambda: behind.state is State.OFF, 60, "an orderly stop")
    for number in range(2, 8):
        commit(cluster, f"{number}000")
        cluster.run_for(2)
    behind.start()
    cluster.run_until(lambda: downloads(behind) > 0, 60, "a part of a snapshot")
    return behind


def downloads(node: SimulatedNode) -> int:
    """Returns how many bytes of a snapshot the node has downloaded so far."""
    role = None if node.raft is None else node.raft.role
    return role.download_position if isinstance(role, Follower) and role.download is not None else 0


def has_loaded(cluster: SimulatedCluster, node: SimulatedNode, text: str) -> None:
    commit(cluster, text)
    wait_for_everyone(cluster, text)
    assert node.raft is not None
    assert node.raft.log.start_offset > 0, "the node must have received the records in a snapshot"


@pytest.mark.parametrize("end", ["leader", "follower"])
def test_snapshot_arrives_when_its_download_is_interrupted(end: str) -> None:
    with SimulatedCluster(SEED, controllers=3, configs=SNAPSHOTS) as cluster:
        behind = far_behind(cluster)
        if end == "leader":
            leader = elected_of(cluster)
            leader.kill()
            cluster.run_until(lambda: cluster.active_controller not in (None, leader), 60, "another leader")
            leader.start()
        else:
            behind.cut_power()
            cluster.run_for(1)
            behind.start()
        has_loaded(cluster, behind, "8000")


def elected_of(cluster: SimulatedCluster) -> SimulatedNode:
    active = cluster.active_controller
    assert active is not None
    return active


def test_newer_snapshot_arrives_when_it_supersedes_the_one_that_is_downloaded() -> None:
    with SimulatedCluster(SEED, controllers=3, configs=SNAPSHOTS) as cluster:
        behind = far_behind(cluster)
        assert behind.raft is not None
        role = behind.raft.role
        assert isinstance(role, Follower)
        old, leader = role.download, elected_of(cluster)
        assert leader.raft is not None
        cluster.cut(leader.node_id, behind.node_id)
        for number in range(8, 14):
            commit(cluster, f"{number}000")
            cluster.run_for(1)
        cluster.run_until(lambda: leader.raft and old not in leader.raft.log.snapshots(), 60, "the old one deleted")
        cluster.heal()
        has_loaded(cluster, behind, "20000")


def test_snapshot_arrives_when_parts_of_it_come_damaged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with SimulatedCluster(SEED, controllers=3, configs=SNAPSHOTS) as cluster:
        behind = far_behind(cluster)

        def flipped(data: bytes) -> bytes:
            spoilt = bytearray(data)
            spoilt[len(spoilt) // 2] ^= 0x10
            return bytes(spoilt)

        with monkeypatch.context() as for_a_while:
            damaged = spoil_answers(
                for_a_while, lambda end, data: end.here[0] == behind.name and downloads(behind) > 0, flipped
            )
            cluster.run_for(5)
            assert damaged
            assert behind.state in (State.RUNNING, State.STARTING)
        assert "is impossible, and is ignored" in caplog.text
        has_loaded(cluster, behind, "8000")


def twin_of(cluster: SimulatedCluster, number: int) -> SimulatedNode:
    """Returns another controller with the same id, on a separate machine with an empty disk."""
    name = f"twin-of-{number}"
    config = BrokerConfig(
        {
            "process.roles": "controller",
            "node.id": str(number),
            "listeners": f"CONTROLLER://{name}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"{each.name}:{CONTROLLER_PORT}" for each in cluster),
            "log.dirs": DIRECTORY,
            **CONFIGS,
        }
    )
    twin = SimulatedNode(cluster, config)
    twin.name = name
    random = Random(SEED)
    format_directories(
        config, FormatOptions(cluster.cluster_id, no_initial_controllers=True), 1, lambda line: None, twin.disk,
        lambda: Uuid(random.randbytes(16)),
    )  # fmt: skip
    return twin


def test_each_epoch_has_one_leader_when_two_controllers_have_one_id() -> None:
    """The directory id distinguishes the voter from its twin (KIP-853). So the twin only follows: it neither votes nor
    leads."""
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        commit(cluster, "1000")
        twin = twin_of(cluster, 3)
        everyone = [*cluster, twin]
        leaders: dict[int, set[str]] = {}
        twin.start()
        cluster.run_until(lambda: twin.state is State.RUNNING, 60, "the twin")
        for number in (3, 1, 2, 3):
            cluster[number].kill()
            for _ in range(100):
                cluster.run_for(0.1)
                for node in everyone:
                    if node.is_up and node.raft is not None and node.raft.is_leader:
                        leaders.setdefault(node.raft.epoch, set()).add(node.name)
            cluster[number].start()
            elected(cluster)
        commit(cluster, "2000")
        wait_for_everyone(cluster, "2000")
        assert len(leaders) > 1
        assert all(len(names) == 1 and twin.name not in names for names in leaders.values()), leaders
        assert twin.state is State.RUNNING and twin.raft is not None and twin.raft.high_watermark > 0
