"""The class `Cluster`. The same tests run in real time, and in a simulated world with a seed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import DescribeClusterRequest
from kafkacore.testing import Broker, Cluster
from kafkacore.testing.lookup import UnknownName

REAL = None


@pytest.fixture(params=[REAL, 7], ids=["real", "simulated"])
def new(request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """Returns a function that makes clusters of either kind. They end with the test."""
    made: list[Cluster] = []

    def make(*arguments: Any, **named: Any) -> Cluster:
        made.append(Cluster(*arguments, seed=request.param, **named))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_cluster_elects_a_controller_and_serves_topics_of_every_broker(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=3, brokers=3, topics={"orders": 6})
    assert [node.roles for node in cluster] == [("controller",)] * 3 + [("broker",)] * 3
    assert {cluster.leader("orders", partition).node_id for partition in range(6)} == {4, 5, 6}
    for partition in range(6):
        assert cluster.produce("orders", f"value {partition}", partition=partition) == 0
        assert [record.value for record in cluster.consume("orders", partition=partition)] == [b"value %d" % partition]
    assert all(node.topics == {"orders": 6} for node in cluster)


@pytest.mark.parametrize("static", [False, True], ids=["dynamic-voters", "static-voters"])
def test_another_controller_takes_over_when_the_active_one_is_killed(
    new: Callable[..., Cluster], *, static: bool
) -> None:
    cluster = new(nodes=3, topics=["before"], static=static)
    killed = cluster.controller.active
    killed.kill()
    assert killed.state == "off"
    active = cluster.controller.active
    assert active is not killed
    cluster.create_topic("after")
    killed.start()
    cluster.wait_until_ready()
    assert all(set(node.topics) == {"before", "after"} for node in cluster)


def test_majority_elects_when_the_active_controller_is_cut_off(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=3, brokers=1)
    first = cluster.controller.active
    cluster.cut([first.node_id], [node.node_id for node in cluster if node is not first])
    second = cluster.wait_until(
        lambda: (now := cluster.controller.current) is not first and now, "another active controller"
    )
    cluster.create_topic("during")
    assert "during" not in first.topics
    cluster.heal()
    cluster.wait_until_ready()
    assert cluster.controller.active is second
    assert not first.is_active_controller
    assert "during" in first.topics


def test_records_of_a_killed_broker_are_there_when_it_starts_again(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=1, brokers=2, topics=["orders"])
    leader = cluster.leader("orders")
    for number in range(5):
        assert cluster.produce("orders", str(number)) == number
    leader.kill()
    leader.start()
    cluster.wait_until_ready()
    assert cluster.leader("orders") is leader
    assert [record.value for record in cluster.consume("orders", 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_write_waits_for_the_disk_when_it_is_slow(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=1, topics=["orders"], configs={"log.flush.interval.messages": 1})
    cluster.produce("orders", "opens the log")
    cluster.slow_disk(1, ms=200)
    node = cluster[1]
    began_ns = node.server.world.environment.monotonic_ns()
    assert cluster.produce("orders", "slow") == 1
    assert node.server.world.environment.monotonic_ns() - began_ns >= 200_000_000  # at least the duration of the sync
    cluster.slow_disk(1, ms=0)
    with pytest.raises(ValueError, match="can be slowed by 0 to below 1000 ms, not by 1000"):
        cluster.slow_disk(1, ms=1000)


def test_wait_shows_the_state_of_each_node_when_its_time_is_over(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=1, brokers=1)
    cluster[2].stop()
    with pytest.raises(TimeoutError, match=r"a miracle did not happen within 0.2 s. Now: 1 running .*, 2 off"):
        cluster.wait_until(lambda: False, "a miracle", limit_s=0.2)


def test_leader_of_a_topic_that_does_not_exist_is_refused_long_before_other_waits_end(
    new: Callable[..., Cluster],
) -> None:
    cluster = new(topics={"orders": 2})
    for ask in (cluster.leader, lambda topic: cluster.produce(topic, b"v"), cluster.consume):
        with pytest.raises(UnknownName, match="there is no topic called 'order'; do you mean orders"):
            ask("order")
    with pytest.raises(UnknownName, match="topic orders has no partition 2: its partitions are 0 to 1"):
        cluster.leader("orders", 2)


def test_leader_of_a_topic_is_found_when_the_topic_is_created_meanwhile() -> None:
    with Cluster() as cluster, ThreadPoolExecutor() as threads:
        leader = threads.submit(cluster.leader, "late")
        cluster.create_topic("late")
        assert leader.result() is cluster[1]


def test_node_that_does_not_exist_is_refused() -> None:
    with Cluster(nodes=2, seed=1) as cluster:
        for call in (lambda: cluster[3], lambda: cluster.cut(1, 3), lambda: cluster.slow_disk(3, ms=5)):
            with pytest.raises(ValueError, match="there is no node 3; the nodes are 1 to 2"):
                call()


def test_node_answers_any_request(new: Callable[..., Cluster]) -> None:
    cluster = new(controllers=1, brokers=2)
    answer = cluster[3].ask(DescribeClusterRequest())
    assert {broker.broker_id for broker in answer.brokers} == {2, 3}


def test_topic_is_refused_with_the_error_of_the_controller(new: Callable[..., Cluster]) -> None:
    cluster = new(nodes=1)
    with pytest.raises(KafkaError, match="bad name"):
        cluster.create_topic("bad name")


def test_clients_write_and_read_through_sockets_of_several_brokers() -> None:
    with Cluster(controllers=1, brokers=3, topics={"orders": 6}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(60):
            producer.produce("orders", str(number), partition=number % 6)
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        found: list[bytes] = []
        while len(found) < 60:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            found.append(message.value())
        consumer.close()
        assert sorted(map(int, found)) == list(range(60))


def test_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> tuple[int, float]:
        with Cluster(controllers=3, seed=seed) as cluster:
            cluster.controller.active.kill()
            return cluster.controller.active.node_id, cluster._backend.now_ms()

    assert run(3) == run(3)
    assert len({run(seed) for seed in range(4)}) > 1


def test_simulated_node_is_paused_and_resumed() -> None:
    with Cluster(controllers=3, brokers=1, seed=1) as cluster:
        paused = cluster.controller.active
        paused.pause()
        assert cluster.controller.active is not paused
        assert paused.state == "paused"
        paused.resume()
        cluster.wait_until(lambda: paused.is_running and not paused.is_active_controller, "the end of its term")


def test_real_cluster_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    Cluster(controllers=1, brokers=1).close()
    assert set(threading.enumerate()) <= before


def test_cluster_refuses_impossible_arguments_and_actions() -> None:
    with pytest.raises(ValueError, match="has no controller"):
        Cluster(brokers=3)
    with pytest.raises(ValueError, match="nodes that do not exist"):
        Cluster(nodes=1, of_node={2: {}})
    with Cluster(seed=1) as simulated, pytest.raises(ValueError, match="has no socket"):
        assert simulated.bootstrap
    with Cluster() as real, pytest.raises(ValueError, match="cannot be paused"):
        real[1].pause()


def test_broker_and_cluster_live_in_one_process() -> None:
    with Broker(topics=["t"]) as broker, Cluster(topics=["t"]) as cluster:
        assert broker.produce("t", "x") == cluster.produce("t", "y") == 0
        assert [record.value for record in broker.consume("t")] == [b"x"]
