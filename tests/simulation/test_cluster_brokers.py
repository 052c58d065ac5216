"""Brokers in the simulated world. They register, serve records from their simulated disks, and lose only unsynced
records.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import pytest

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.simulation.client import SimulatedClient
from kafkacore.simulation.cluster import SimulatedCluster, running
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.loop import SimulatedLoopThread
from kafkacore.simulation.machine import WALL_MS
from kafkacore.simulation.node import State
from kafkacore.simulation.watch import Watcher
from seeds import SEED
from simulated_clusters import told_with_other_orders_of_sets

STORY = """
from test_cluster_brokers import story
print(story({seed}))
"""


def batch(number: int) -> bytes:
    """Returns a batch with one record. Its timestamp is the beginning of the simulated world, so it is the same in each
    run."""
    builder = RecordBatchBuilder()
    builder.append(timestamp=WALL_MS, key=None, value=b"record %d" % number)
    return builder.build()


async def ask(client: SimulatedClient, node_id: int, request: Any, version: int) -> Any:
    """Returns the answer of a broker. Repeats the request while the broker is unavailable."""
    while True:
        try:
            return await client.send(node_id, request, version=version, timeout_ms=2_000)
        except (OSError, TimeoutError, KafkaError):
            await client.pause(0.1)


async def create(client: SimulatedClient, node_id: int, topic: str, **configs: str) -> int:
    """Creates a topic with one partition. Returns the partition's leader."""
    settings = [
        m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=text)
        for key, text in configs.items()
    ]
    asked = m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=settings)
    while True:
        answer = await ask(client, node_id, m.CreateTopicsRequest(topics=[asked], timeout_ms=5_000), 7)
        if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            break
        await client.pause(0.2)
    while True:
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=topic)]
        (found,) = (await ask(client, node_id, m.MetadataRequest(topics=wanted), 12)).topics
        if found.partitions and found.partitions[0].leader_id >= 0:
            return int(found.partitions[0].leader_id)
        await client.pause(0.2)


async def produce(client: SimulatedClient, node_id: int, topic: str, first: int) -> None:
    part = m.ProduceRequest.PartitionProduceData(index=0, records=batch(first))
    data = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    while True:
        answer = await ask(client, node_id, m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data), 9)
        (told,) = answer.responses[0].partition_responses
        if told.error_code == ErrorCode.NONE:
            return
        await client.pause(0.1)


async def fetch(client: SimulatedClient, node_id: int, topic: str, max_wait_ms: int = 0, least: int = 1) -> list[bytes]:
    """Waits until the leader serves `least` values or more. Returns the values. A leader that has just started serves
    them when it knows its high watermark."""
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1 if max_wait_ms else 0, max_bytes=1 << 20,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
    while True:
        (told,) = (await ask(client, node_id, request, 11)).responses[0].partitions
        values = [bytes(record.value or b"") for each in Batches(told.records or b"") for record in each]
        if told.error_code == ErrorCode.NONE and len(values) >= least:
            return values
        await client.pause(0.1)


async def commit_offset(client: SimulatedClient, group: str, offset: int) -> int:
    """Commits an offset of a group and fetches it again. Sends both requests to the group's coordinator, on whichever
    broker that is."""
    part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])]
    wanted = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    while True:
        found = await ask(client, 4, m.FindCoordinatorRequest(key=group), 3)
        if not found.error_code:
            there = found.node_id
            told = await ask(client, there, m.OffsetCommitRequest(group_id=group, topics=topics), 7)
            if told.topics[0].partitions[0].error_code == ErrorCode.NONE:
                break
        await client.pause(0.2)
    answer = await ask(client, there, m.OffsetFetchRequest(group_id=group, topics=wanted), 7)
    return int(answer.topics[0].partitions[0].committed_offset)


def started(seed: int) -> SimulatedCluster:
    configs = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2"}
    cluster = SimulatedCluster(seed, controllers=3, brokers=3, configs=configs)
    cluster.start()
    cluster.run_until(lambda: running(cluster) and cluster.active_controller is not None, 60, "a running cluster")
    return cluster


def story(seed: int) -> str:
    """Runs a cluster with records, committed offsets and faults of brokers. Returns the hash of the trace."""
    with started(seed) as cluster:
        client = cluster.client()
        leader = cluster.run(client, create(client, 4, "t", flush_messages="1"))
        for first in range(3):
            cluster.run(client, produce(client, leader, "t", first))
        assert cluster.run(client, commit_offset(client, "g", 2)) == 2
        cluster[leader].cut_power()
        cluster.run_for(2)
        cluster.start()
        assert len(cluster.run(client, fetch(client, leader, "t", least=3))) == 3
        other = cluster[4 if leader != 4 else 5]
        other.stop()  # an orderly stop cancels tasks and closes connections, in an order that depends only on the seed
        cluster.run_until(lambda: other.state is State.OFF, 60, "the end of a broker")
        other.start()
        active = cluster.active_controller
        assert active is not None
        active.kill()
        assert cluster.run(client, create(client, leader, "u")) in (4, 5, 6)
        return cluster.trace_hash


def test_brokers_register_and_serve_records_and_offsets() -> None:
    with started(SEED) as cluster:
        client, reader = cluster.client(), cluster.client("reader")
        leader = cluster.run(client, create(client, 4, "t"))
        waiting = reader.start(fetch(reader, leader, "t", max_wait_ms=1_500))
        cluster.run_for(0.5)
        assert not waiting.done()
        cluster.run(client, produce(client, leader, "t", 0))
        cluster.run_until(waiting.done, 1, "the end of a Fetch that waited for records")
        assert waiting.result() == [b"record 0"]
        assert cluster.run(client, commit_offset(client, "g", 7)) == 7
        images = [node.broker_image for node in cluster.brokers]
        assert all(image is not None and image.topic("t") is not None for image in images)


def test_acknowledged_record_survives_a_power_cut_when_each_message_is_synced() -> None:
    with started(SEED) as cluster:
        client = cluster.client()
        leader = cluster.run(client, create(client, 4, "t", flush_messages="1"))
        for first in range(5):
            cluster.run(client, produce(client, leader, "t", first))
        cluster[leader].cut_power()
        cluster.start()
        assert cluster.run(client, fetch(client, leader, "t", least=5)) == [b"record %d" % each for each in range(5)]


def test_broker_is_fenced_when_it_stands_still_and_serves_again_when_it_goes_on() -> None:
    with started(SEED) as cluster:

        def is_fenced() -> bool:
            active = cluster.active_controller
            image = None if active is None else active.controller_image
            return image is not None and image.brokers[5].fenced

        cluster[5].pause()
        cluster.run_until(is_fenced, 30, "the fencing of broker 5")
        assert cluster.now_s > 9  # longer than broker.session.timeout.ms
        cluster[5].resume()
        cluster.run_until(lambda: not is_fenced(), 30, "the end of the fencing of broker 5")


def test_former_leader_is_quiet_when_the_sessions_that_it_counted_are_over() -> None:
    with SimulatedCluster(SEED, combined=3) as cluster:
        cluster.start()
        cluster.run_until(lambda: running(cluster) and cluster.active_controller is not None, 60)
        former = cluster.active_controller
        for node in cluster:
            if node is not former:
                node.kill()
        cluster.run_for(20)
        turns = cluster.schedule.turns
        cluster.run_for(5)
        assert cluster.schedule.turns - turns < 5 * 1_000


def test_node_dies_in_the_middle_of_its_start_and_starts_again() -> None:
    with SimulatedCluster(SEED, controllers=3, brokers=1) as cluster:
        cluster.start()
        broker = cluster[4]
        for moment in (0.01, 0.1, 0.3, 1.0, 1.3):
            cluster.run_for(moment)
            if broker.state is State.STARTING:
                broker.cut_power()
                broker.start()
        cluster.run_until(lambda: running(cluster), 60, "a running cluster")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_node_that_dies_before_its_first_turn_leaves_no_coroutine_behind() -> None:
    with SimulatedCluster(SEED, controllers=1) as cluster:
        cluster.start()
        cluster[1].kill()
        assert cluster[1].state is State.OFF


@pytest.mark.filterwarnings("error::RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_node_that_dies_leaves_no_coroutine_behind_when_one_loop_has_submitted_it_to_another() -> None:
    with SimulatedCluster(SEED, controllers=1) as cluster:
        cluster.start()
        machine = cluster.new_machine("a")
        first, second = machine.loop("first"), machine.loop("second")

        async def work() -> None:
            raise AssertionError("a machine that is off must not run anything")

        async def ask() -> None:
            asked = work()
            await asyncio.wrap_future(SimulatedLoopThread(first).submit(asked), loop=second)
            del asked

        second.create_task(ask())
        first_turn = cluster.schedule.turns + 1
        cluster.run_until(lambda: cluster.schedule.turns >= first_turn, 1)
        machine.kill()
        gc.collect()


def test_stalled_connection_brings_a_former_life_to_the_controller_which_refuses_it() -> None:
    configs = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with SimulatedCluster(SEED, controllers=1, brokers=1, configs=configs) as cluster:
        cluster.start()
        cluster.run_until(lambda: running(cluster), 60, "a running cluster")
        (broker,) = cluster.brokers
        (controller,) = cluster.controllers
        told: list[str] = []
        judge = Judge()
        Watcher(cluster, judge)
        image = controller.controller_image
        assert image is not None
        former = image.brokers[broker.node_id].epoch
        _, go_on = cluster.network.stall(broker.name)
        cluster.run_for(1.0)
        broker.kill()
        broker.start()
        judge.on_event = told.append
        cluster.run_until(lambda: any("accepted=True" in line for line in told), 60, "a heartbeat of the next life")
        assert not any(f"epoch={former}," in line for line in told)
        go_on()
        cluster.run_until(lambda: any(f"epoch={former}," in line for line in told), 10, "the late heartbeat")
        (late,) = [line for line in told if f"epoch={former}," in line]
        assert "accepted=False" in late


@pytest.mark.parametrize("combined", [1, 3])
def test_combined_nodes_serve(combined: int) -> None:
    configs = {"offsets.topic.replication.factor": "1"}
    with SimulatedCluster(SEED, combined=combined, configs=configs) as cluster:
        cluster.start()
        cluster.run_until(lambda: running(cluster), 60, "a running cluster")
        client = cluster.client()
        leader = cluster.run(client, create(client, 1, "t"))
        cluster.run(client, produce(client, leader, "t", 0))
        assert cluster.run(client, fetch(client, leader, "t")) == [b"record 0"]
        for node in cluster:
            node.stop()
        cluster.run_until(lambda: all(node.state is State.OFF for node in cluster), 60, "the end of all nodes")


def test_seed_repeats_a_run_with_brokers_when_sets_have_another_order() -> None:
    hashes = told_with_other_orders_of_sets(STORY.format(seed=SEED), os.path.dirname(__file__), 100)
    assert hashes[0] == hashes[1] == f"{story(SEED)}\n"
