"""Whole nodes in the simulated world. They elect a controller, commit changes and survive faults, and a seed repeats
the run."""

from __future__ import annotations

import asyncio
import os
from unittest import mock

import pytest

from kafkacore.protocol.messages import DescribeQuorumRequest
from kafkacore.raft.file_log import FileLog
from kafkacore.simulation.cluster import SimulatedCluster, SimulationTimeout, running
from kafkacore.simulation.node import State
from seeds import SEED
from simulated_clusters import commit, elected, is_in_every_image, told_with_other_orders_of_sets

# Two interpreters with different hash seeds, and so different orders of sets, run this program and print the hash of
# the trace.
STORY = """
from test_cluster import story
print(story({seed}))
"""

TOPIC = DescribeQuorumRequest.TopicData(
    topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
)
QUORUM = DescribeQuorumRequest(topics=[TOPIC])


def story(seed: int) -> str:
    """Runs a cluster with faults of every kind. Returns the hash of the trace."""
    with SimulatedCluster(seed, controllers=3) as cluster:
        cluster.start()
        commit(cluster, "1000")
        first = elected(cluster)
        first.kill()
        commit(cluster, "2000")
        first.start()
        second = elected(cluster)
        second.pause()
        cluster.run_for(5)
        second.resume()
        commit(cluster, "3000")
        elected(cluster).cut_power()
        cluster.partition([1], [2, 3])
        cluster.run_for(5)
        cluster.heal()
        cluster.start()
        commit(cluster, "4000")
        cluster.run_until(lambda: is_in_every_image(cluster, "4000"), 30, "the same image everywhere")
        return cluster.trace_hash


@pytest.mark.parametrize("static", [True, False])
def test_three_voters_commit_and_another_one_leads_when_the_active_controller_is_killed(static: bool) -> None:
    with SimulatedCluster(SEED, controllers=3, static=static) as cluster:
        cluster.start()
        first = elected(cluster)
        commit(cluster, "86400000")
        cluster.run_until(lambda: is_in_every_image(cluster, "86400000"), 10, "the commit in every image")
        first.kill()
        second = elected(cluster)
        assert second is not first
        commit(cluster, "172800000")
        first.start()
        cluster.run_until(lambda: is_in_every_image(cluster, "172800000"), 30, "the commit in every image")


def test_active_controller_answers_while_a_slow_disk_begins_segments() -> None:
    begin_s = 0.5
    with SimulatedCluster(SEED, controllers=3, configs={"internal.metadata.log.segment.bytes": "2000"}) as cluster:
        cluster.start()
        active = elected(cluster)
        assert active.machine is not None
        # Sets the duration of work on other threads, such as the creation of a segment.
        active.machine.work_random = lambda least_s, most_s: begin_s
        client = cluster.client("watcher")
        waited_on: list[str] = []
        committed_s: list[float] = []
        answered_s: list[float] = []

        async def ask_on() -> None:
            while True:
                asked_s = cluster.now_s
                await client.send(active.node_id, QUORUM)
                answered_s.append(cluster.now_s - asked_s)

        def begin_segment(log: FileLog) -> None:
            waited_on.append(repr(asyncio.get_running_loop()))
            right(log)

        right = FileLog.begin_segment
        asking = client.start(ask_on())
        with mock.patch.object(FileLog, "begin_segment", begin_segment):
            for number in range(30):
                asked_s = cluster.now_s
                commit(cluster, str(86_400_000 + number))
                committed_s.append(cluster.now_s - asked_s)
        assert not asking.done() and active.is_active_controller
        assert len(waited_on) > 2 and all(loop.endswith("/work>") for loop in waited_on)
        assert max(committed_s) > begin_s, "no change has waited for a segment"
        assert max(answered_s) < begin_s / 2, "requests must not wait for a segment"


def test_cluster_elects_nobody_when_the_majority_is_off() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        active = elected(cluster)
        for node in cluster:
            if node is not active:
                node.cut_power()
        cluster.run_until(lambda: not active.is_active_controller, 10, "the resignation of a leader whom nobody asks")
        with pytest.raises(SimulationTimeout, match=rf"seed {SEED}: an active controller did not happen within 60 s"):
            cluster.run_until(lambda: cluster.active_controller is not None, 60, "an active controller")


def test_old_leader_steps_down_when_it_is_cut_off_and_follows_after_the_heal() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        old = elected(cluster)
        others = [node.node_id for node in cluster if node is not old]
        cluster.partition([old.node_id], others)
        cluster.run_until(lambda: cluster.active_controller not in (None, old), 30, "another active controller")
        assert not old.is_active_controller or cluster.active_controller is not old
        cluster.heal()
        cluster.run_until(lambda: not old.is_active_controller, 30, "the old leader's end")
        commit(cluster, "5000")
        cluster.run_until(lambda: is_in_every_image(cluster, "5000"), 30, "the commit in every image")


def test_acknowledged_change_survives_when_every_voter_loses_its_power() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        commit(cluster, "6000")
        for node in cluster:
            node.cut_power()
        cluster.start()
        elected(cluster)
        cluster.run_until(lambda: is_in_every_image(cluster, "6000"), 30, "the commit in every image")


def test_nodes_stop_in_order_when_they_are_asked() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        cluster.start()
        cluster.run_until(lambda: running(cluster), 30)
        for node in cluster:
            node.stop()
        cluster.run_until(lambda: all(node.state is State.OFF for node in cluster), 30, "the end of all nodes")


def test_clocks_that_run_at_different_rates_elect() -> None:
    with SimulatedCluster(SEED, controllers=3) as cluster:
        for node, rate in zip(cluster, (0.8, 1.0, 1.25), strict=True):
            node.set_clock(rate=rate, jump_ms=int(1000 * rate))
        cluster.start()
        commit(cluster, "7000")
        elected(cluster).set_clock(jump_ms=-3_600_000)
        commit(cluster, "8000")


def test_seed_repeats_the_run_when_sets_have_another_order() -> None:
    assert story(SEED) != story(SEED + 1)
    hashes = told_with_other_orders_of_sets(STORY.format(seed=SEED), os.path.dirname(__file__), 60)
    assert hashes[0] == hashes[1] == f"{story(SEED)}\n"
