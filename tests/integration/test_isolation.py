"""`isolation=process`: the controller of a node with both roles in a process of its own."""

import os
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import Node
from kafkacore.storage.directory_lock import DirectoryLocks
from kafkacore.storage.errors import LogDirectoryError
from processes import wait_until

pytestmark = pytest.mark.timeout(90)
TOPIC = "orders"


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def node(tmp_path):
    running = Node(tmp_path / "node", "--topic", f"{TOPIC}:1", overrides={"isolation": "process"})
    yield running
    running.kill()


def produce(node, count):
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(30) == 0


def consume(node, count):
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = [message.value() for message in consumer.consume(count, timeout=30)]
    consumer.close()
    return values


def test_forwarded_request_does_not_wait_behind_a_fetch_of_the_metadata_log(node):
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    started = time.monotonic()
    for _ in range(10):
        [answer] = admin.create_topics([NewTopic(TOPIC, 1)]).values()
        assert answer.exception(10).args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    # Each took half a second while they shared one connection.
    assert time.monotonic() - started < 2.5


def test_node_serves_clients_when_its_controller_is_another_process(node):
    (controller,) = children(node.pid)
    assert b"kafkacore.tools.isolated" in Path(f"/proc/{controller}/cmdline").read_bytes()
    produce(node, 100)
    assert consume(node, 100) == [b"%d" % number for number in range(100)]
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert admin.list_topics(timeout=10).controller_id == 1
    for address in (node.bootstrap, node.controller):
        host, port = address.rsplit(":", 1)
        assert (host, int(port) > 0) == ("127.0.0.1", True)


def test_node_and_controller_keep_their_data_when_they_stop_and_start(node):
    produce(node, 10)
    (controller,) = children(node.pid)
    assert node.stop() == 0
    assert not is_alive(controller)
    node.start()
    produce(node, 10)
    assert len(consume(node, 20)) == 20


def test_controller_leaves_signals_to_its_node(node):
    (controller,) = children(node.pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(controller, number)
    produce(node, 10)
    assert children(node.pid) == [controller]
    os.kill(controller, signal.SIGTERM)
    assert node.stop() == 0
    assert not is_alive(controller)


def test_controller_imports_nothing_from_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current directory')")
    monkeypatch.chdir(tmp_path)
    running = Node(tmp_path / "node", overrides={"isolation": "process"})
    try:
        assert len(children(running.pid)) == 1
    finally:
        running.kill()


def test_directory_stays_locked_until_the_controller_of_a_killed_node_ends(node):
    produce(node, 10)
    (controller,) = children(node.pid)
    os.kill(controller, signal.SIGSTOP)  # alive, but unable to notice
    node.kill()
    with pytest.raises(LogDirectoryError, match="in use by another node"):
        DirectoryLocks([str(node.log_dir)])
    os.kill(controller, signal.SIGCONT)
    wait_until(lambda: not is_alive(controller), what="the controller ends with its node")
    node.start()
    assert len(consume(node, 10)) == 10


def test_node_exits_with_the_reason_when_its_controller_dies(node):
    (controller,) = children(node.pid)
    os.kill(controller, signal.SIGKILL)
    assert node.child.process.wait(20) == 1  # it waits for no hand-over
    assert f"its controller, process {controller}, ended with status -9" in node.child.tail()


def test_controller_process_gets_the_controller_part_of_the_configuration(tmp_path):
    from kafkacore.config import BrokerConfig
    from kafkacore.server.controller_process import properties

    both = BrokerConfig({
        "process.roles": "broker,controller", "node.id": "1", "isolation": "process",
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        "cordoned.log.dirs": f"{tmp_path}/b",
        "listeners": "INSIDE://localhost:0,PLAINTEXT://localhost:0,CONTROLLER://[::1]:0", "metrics.port": "9404",
        "inter.broker.listener.name": "INSIDE", "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": "INSIDE://in:1,PLAINTEXT://out:2,CONTROLLER://voter:3",
        "controller.quorum.bootstrap.servers": "voter:3",
    })  # fmt: skip
    alone = BrokerConfig(properties(both))
    assert alone.process_roles == {"controller"}
    assert [str(each) for each in alone.listeners] == ["CONTROLLER://[::1]:0"]
    assert [str(each) for each in alone.advertised_controller_listeners] == ["CONTROLLER://voter:3"]
    assert (alone.log_dirs, alone.metadata_log_dir, alone.metrics_port) == ((f"{tmp_path}/a",), f"{tmp_path}/a", -1)
