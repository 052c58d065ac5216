"""A broker inside a test. It is ready when its constructor returns, and it leaves nothing behind after `close`."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkacore._fast.hot import produce
from kafkacore._fast.log import partition_watch as watch
from kafkacore._fast.plane import connection, inbound, plane, processor
from kafkacore._fast.wait import io
from kafkacore.config import ConfigError
from kafkacore.protocol.errors import KafkaError
from kafkacore.runtime.temporary_directory import remove_abandoned
from kafkacore.testing import Broker
from kafkacore.testing import broker as testing_broker
from kafkacore.testing import remote as testing_remote
from kafkacore.testing.broker import BrokerClosed
from kafkacore.testing.lookup import UnknownName
from kafkacore.testing.remote import RemoteBroker

pytestmark = pytest.mark.timeout(60)


def descriptors() -> Counter[str]:
    """Returns the open descriptors of this process. Files are given by name, sockets and others by kind."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{name}").partition(":[")[0]] += 1
        except FileNotFoundError:  # this is the descriptor of the listing itself
            continue
    return found


def native_objects() -> dict[str, object]:
    gc.collect()
    return {
        "planes": plane.live(),
        "inbound": inbound.live(),
        "processors": processor.live(),
        "connections": connection.live(),
        "directories": io.live_count(),
        "watches": watch.live(),
        "produces": produce.live(),
    }


def test_broker_serves_a_client_when_the_constructor_returns() -> None:
    with Broker(topics={"orders": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"value", key=b"key", partition=1)
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 1, 0)])
        message = consumer.poll(10)
        consumer.close()
        assert message is not None
        assert (message.key(), message.value()) == (b"key", b"value")


def test_closed_broker_leaves_nothing_behind() -> None:
    Broker().close()  # the first use loads libraries, which stay loaded
    objects, open_files, threads = native_objects(), descriptors(), set(threading.enumerate())
    with Broker(topics=["t"], record=True, time="frozen") as broker:
        directory, port = broker.directory, int(broker.bootstrap.rpartition(":")[2])
        broker.produce("t", "value")
        broker.consume("t")
        broker.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER")
        broker.delay("Fetch", seconds=60)
        broker.clock.advance(hours=1)
        broker.fill_disk(free_bytes=1 << 20)
        broker.restart()
        assert broker.log("t").values() == [b"value"]
    assert not os.path.exists(directory)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    del broker
    assert native_objects() == objects
    assert {one for one in threading.enumerate() if one.is_alive()} <= threads
    assert descriptors() == open_files


def test_closed_broker_needs_no_garbage_collection() -> None:
    def use() -> None:
        with Broker(topics=["t"]) as broker:
            broker.produce("t", "value")

    use()
    gc.collect()
    gc.disable()
    try:
        use()
        before = descriptors()
        for _ in range(2):
            use()
        assert descriptors() == before
    finally:
        gc.enable()


def test_files_are_in_memory_when_the_machine_has_a_tmpfs(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        assert broker.directory.startswith("/dev/shm/")
    monkeypatch.setattr(testing_broker, "MEMORY_DIRECTORY", "/nowhere")
    with Broker() as broker:
        assert not broker.directory.startswith("/dev/shm/")


PROGRAM = """
import os, sys
from kafkacore.testing import Broker
broker = Broker(topics=["t"])
print(os.path.dirname(broker.directory), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


def test_files_of_an_open_broker_go_with_its_process_or_with_the_next_one_after_a_kill() -> None:
    def run(how: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, text=True, check=False
        ).stdout.strip()

    forgotten, killed = run("forgotten"), run("killed")
    assert forgotten
    assert not os.path.exists(forgotten)
    assert os.path.exists(killed)
    with Broker() as broker:
        remove_abandoned(testing_broker.MEMORY_DIRECTORY, testing_broker.DIRECTORY_PREFIX)
        assert not os.path.exists(killed)
        assert os.path.exists(broker.directory)
        broker.stop()
        remove_abandoned(testing_broker.MEMORY_DIRECTORY, testing_broker.DIRECTORY_PREFIX)
        broker.start()


def test_named_directory_is_kept_and_used_again(tmp_path: Path) -> None:
    with Broker(topics=["t"], directory=tmp_path / "kept") as broker:
        broker.produce("t", "before")
    with Broker(directory=tmp_path / "kept") as broker:
        assert broker.produce("t", "after") == 1
        assert broker.log("t").values() == [b"before", b"after"]


def test_several_brokers_run_at_once_with_clocks_of_their_own() -> None:
    with Broker(time="frozen", start_ms=1_000_000) as one, Broker(time="frozen", start_ms=2_000_000) as other:
        one.create_topic("t")
        assert other.topics == {}
        one.clock.advance(minutes=1)
        assert (one.clock.now_ms, other.clock.now_ms) == (1_060_000, 2_000_000)


def test_restart_keeps_the_port_and_the_records() -> None:
    with Broker(topics=["t"]) as broker:
        before = broker.bootstrap
        broker.produce("t", "one")
        broker.restart()
        assert broker.bootstrap == before
        assert broker.produce("t", "two") == 1


def test_async_close_does_not_block_the_loop() -> None:
    async def use() -> int:
        async with Broker(topics=["t"]) as broker:
            return await asyncio.to_thread(broker.produce, "t", "value")

    assert asyncio.run(use()) == 0


def test_call_on_a_closed_broker_says_that_it_is_closed() -> None:
    broker = Broker()
    broker.close()
    broker.close()
    with pytest.raises(BrokerClosed, match="stopped or closed"):
        broker.create_topic("t")
    with pytest.raises(BrokerClosed):
        broker.refuse("Produce", error="UNKNOWN_SERVER_ERROR")
    with warnings.catch_warnings(), pytest.raises(BrokerClosed):
        warnings.simplefilter("error")  # a coroutine that is never awaited would cause a warning
        broker.produce("t", "x")


def test_configs_are_keys_of_server_properties() -> None:
    with Broker(configs={"num.partitions": 3, "auto.create.topics.enable": True, "message.max.bytes": 1000}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10_000})
        failures = []
        producer.produce("made-by-use", b"x" * 5000, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(10) == 0
        assert broker.topics == {"made-by-use": 3}
        assert failures[0].name() == "MSG_SIZE_TOO_LARGE"


def test_invalid_config_is_refused_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing_broker, "MEMORY_DIRECTORY", str(tmp_path))
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker(configs={"num.partitions": "many"})
    with pytest.raises(KafkaError, match="not/a/name"):
        Broker(topics=["not/a/name"])
    with pytest.raises(ValueError, match="'running' or 'frozen'"):
        Broker(time="slow")
    assert os.listdir(tmp_path) == []


def test_key_without_effect_is_a_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"no key called 'message\.max\.byte'; do you mean message\.max\.bytes"
    ) as told:
        Broker(configs={"message.max.byte": 100, "message.max.bytes": 100}).close()
    assert [each.filename for each in told] == [__file__]
    with pytest.warns(UserWarning, match=r"zookeeper\.connect: removed in Kafka 4\.0"):
        Broker(configs={"zookeeper.connect": "somewhere"}).close()


def test_single_name_is_refused_where_topics_are_expected() -> None:
    with pytest.raises(TypeError, match=r"`topics` is the string 'orders'; give a list such as \['orders'\]"):
        Broker(topics="orders")


def test_topic_has_its_own_configs() -> None:
    with Broker() as broker:
        assert broker.create_topic("t", 2, configs={"max.message.bytes": 100}) == "t"
        with pytest.raises(KafkaError, match=r"max\.message\.bytes|larger"):
            broker.produce("t", "x" * 1000)
        with pytest.raises(KafkaError, match="exists"):
            broker.create_topic("t")


def test_log_shows_its_records_and_offsets() -> None:
    with Broker(topics=["t"], configs={"log.segment.bytes": 1 << 20}) as broker:
        log = broker.log("t")
        assert (log.records(), log.segments, log.end_offset, len(log)) == ([], [], 0, 0)
        now_ms = broker.clock.now_ms
        broker.produce("t", "one", key="k", headers={"h": "v", "none": None}, timestamp_ms=now_ms)
        broker.produce("t", None, key="k")
        first, second = log.records()
        assert first == (0, now_ms, b"k", b"one", [("h", b"v"), ("none", None)])
        assert (second.offset, second.value) == (1, None)
        assert log.records(1) == [second]
        assert log.records(end=1) == [first]
        assert (log.high_watermark, log.last_stable_offset, log.start_offset, len(log)) == (2, 2, 0, 2)
        [batch, _] = log.batches()
        assert (batch.base_offset, batch.record_count, batch.codec, batch.producer_id) == (0, 1, "none", -1)
        assert [each.base_offset for each in log.segments] == [0]


def test_error_for_an_unknown_log_names_the_existing_ones() -> None:
    with Broker(topics={"orders": 2, "payments": 1}) as broker:
        with pytest.raises(UnknownName, match="do you mean orders"):
            broker.log("order")
        with pytest.raises(UnknownName, match="partitions 0 to 1, not 2"):
            broker.log("orders", 2)


def test_error_for_a_refused_record_names_its_partition() -> None:
    with Broker(topics=["t"]) as broker:
        with pytest.raises(KafkaError, match=r"^absent-4: "):
            broker.produce("absent", "x", partition=4)
        with pytest.raises(KafkaError, match=r"^t-0 from offset 7: "):
            broker.consume("t", 1, offset=7)


def test_error_for_missing_records_shows_those_that_came() -> None:
    with Broker(topics=["t"]) as broker:
        broker.produce("t", "one")
        with pytest.raises(TimeoutError, match="1 of 2 records of t-0"):
            broker.consume("t", 2, timeout_seconds=0.05)


def test_error_for_missing_records_shows_those_that_came_when_the_limit_is_longer_than_that_of_other_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker(topics=["t"]) as broker, RemoteBroker(broker.bootstrap) as remote:
        for module in (testing_broker, testing_remote):
            monkeypatch.setattr(module, "_CALL_SECONDS", 1.0)
        for each in (broker, remote):
            with pytest.raises(TimeoutError, match="0 of 1 records of t-0"):
                each.consume("t", timeout_seconds=1.1)


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt])
def test_interrupted_close_stops_the_node_and_removes_the_files(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    broker = Broker(topics=["t"])
    broker.produce("t", "value")
    node, directory = broker.node, broker.directory

    def fails(work: Coroutine[object, object, object], *_: object) -> None:
        work.close()
        raise raised("not now")

    with monkeypatch.context() as patched:
        patched.setattr(node.broker.plane.loop, "run", fails)
        stopped = []
        stop = node.stop
        patched.setattr(node, "stop", lambda: stopped.append(patched.undo()) or stop())
        with pytest.raises(raised, match="not now"):
            broker.close()
    assert stopped
    assert not os.path.exists(directory)
