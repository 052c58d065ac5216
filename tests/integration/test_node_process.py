"""The `kafkacore` command as a user runs it: processes, signals, directories that persist, and failures to start."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkacore.runtime.ports import free_ports
from kafkacore.storage import bootstrap
from processes import wait_until

KAFKACORE = [sys.executable, "-m", "kafkacore.tools.main"]
pytestmark = pytest.mark.timeout(90)


class Dev:
    """A `kafkacore dev --json` process."""

    def __init__(self, *arguments: str, **popen: Any) -> None:
        self.process = subprocess.Popen(
            [*KAFKACORE, "dev", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=30)
            raise AssertionError(f"no line of JSON, exit code {self.process.returncode}: {errors}")
        self.told = json.loads(line)
        self.bootstrap: str = self.told["bootstrap"]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ends the process. Returns its exit code and its standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@contextmanager
def dev(*arguments: str, **popen: Any) -> Iterator[Dev]:
    running = Dev(*arguments, **popen)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate()


def fails(*arguments: str, **run: Any) -> str:
    """Runs a command that must exit with 1. Returns its standard error."""
    ended = subprocess.run([*KAFKACORE, *arguments], capture_output=True, text=True, timeout=60, check=False, **run)
    assert ended.returncode == 1, (ended.stdout, ended.stderr)
    return ended.stderr


def topics(bootstrap: str) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=20).topics.items()}


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failures: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 20)
        assert messages, f"only {len(found)} of {count} records came"
        assert [message.error() for message in messages if message.error()] == []
        found += [message.value() for message in messages]
    consumer.close()
    return found


def test_dev_prints_its_addresses_serves_clients_and_leaves_nothing_behind() -> None:
    with dev("--topic", "orders:3") as running:
        assert set(running.told) == {"bootstrap", "controller", "metrics", "pid", "dir"}
        assert running.told["pid"] == running.process.pid
        assert topics(running.bootstrap) == {"orders": 3}
        produce(running.bootstrap, "new", [b"a", b"b"])
        assert consume(running.bootstrap, "new", 2) == [b"a", b"b"]
        with urllib.request.urlopen(running.told["metrics"], timeout=20) as answer:
            assert "kafka_network_requestmetrics_requests_total" in answer.read().decode()
        assert running.end() == (0, "")
    assert not os.path.exists(os.path.dirname(running.told["dir"]))


def test_dev_removes_the_directory_of_a_killed_dev_and_keeps_one_in_use() -> None:
    with dev() as killed, dev() as other:
        killed.process.kill()
        killed.process.communicate()
        with dev() as running:
            assert not os.path.exists(os.path.dirname(killed.told["dir"]))
            assert os.path.exists(other.told["dir"]) and os.path.exists(running.told["dir"])


def test_dev_keeps_data_and_marks_a_clean_shutdown_when_it_has_a_directory(tmp_path: Path) -> None:
    with dev("--dir", str(tmp_path), "--topic", "t:2") as running:
        produce(running.bootstrap, "t", [])
        produce(running.bootstrap, "kept", [b"1", b"2", b"3"])
        cluster = AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=20).cluster_id
        assert running.end()[0] == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with dev("--dir", str(tmp_path), "--topic", "t:5") as running:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        # A topic that already exists is not changed.
        assert topics(running.bootstrap) == {"t": 2, "kept": 1}
        assert AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=20).cluster_id == cluster
        assert consume(running.bootstrap, "kept", 3) == [b"1", b"2", b"3"]


def test_acknowledged_records_survive_when_the_node_is_killed(tmp_path: Path) -> None:
    with dev("--dir", str(tmp_path)) as running:
        produce(running.bootstrap, "t", [b"%d" % number for number in range(500)])
        running.end(signal.SIGKILL)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with dev("--dir", str(tmp_path)) as running:
        assert consume(running.bootstrap, "t", 500) == [b"%d" % number for number in range(500)]


def test_dev_uses_the_given_port_and_overrides() -> None:
    [port] = free_ports(1)
    with dev("--port", str(port), "--override", "auto.create.topics.enable=false") as running:
        assert running.bootstrap == f"127.0.0.1:{port}"
        producer = Producer({"bootstrap.servers": running.bootstrap, "message.timeout.ms": 1000})
        failures: list[Any] = []
        producer.produce("absent", b"x", on_delivery=lambda error, _: failures.append(error))
        producer.flush(20)
        assert len(failures) == 1 and failures[0] is not None
        assert topics(running.bootstrap) == {}


def test_dev_warns_when_an_override_names_no_key() -> None:
    with dev("--override", "log.retention.hour=3", "--override", "log.retention.ms=1000") as running:
        code, errors = running.end()
    assert code == 0
    assert re.findall(r"WARNING kafkacore.tools.dev: (.*)", errors) == [
        "log.retention.hour: unknown key, kept but not used; do you mean log.retention.hours?"
    ]


def test_dev_with_parent_ends_when_its_parent_ends() -> None:
    script = (
        "import subprocess, sys\n"
        f"command = {[*KAFKACORE, 'dev', '--json', '--with-parent']!r}\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline(), end='', flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    told = json.loads(parent.stdout.readline())
    ended = os.pidfd_open(told["pid"])
    parent.kill()
    parent.communicate()
    import select

    assert select.select([ended], [], [], 30)[0], "the node survived its parent"
    os.close(ended)
    assert not os.path.exists(told["dir"])


# --- a server.properties ---


def properties(directory: Path, **changes: str) -> Path:
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": str(directory / "logs"),
    } | {key.replace("_", "."): value for key, value in changes.items()}
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def zookeeper(directory: Path) -> Path:
    path = directory / "zookeeper.properties"
    path.write_text(f"zookeeper.connect=localhost:2181\nbroker.id=0\nlog.dirs={directory / 'logs'}\n")
    return path


def format_directories(path: Path, cluster_id: str = "MkU3OEVBNTcwNTJENDM2Qg") -> None:
    subprocess.run(
        [*KAFKACORE, "storage", "format", "-c", str(path), "-t", cluster_id],
        check=True,
        capture_output=True,
        timeout=60,
    )


@contextmanager
def started(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*KAFKACORE, "start", str(path), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str], node_id: int = 1) -> dict[str, str]:
    """Waits for the line that says that the node is ready. Returns the addresses by listener."""
    assert process.stdout is not None
    line, head = process.stdout.readline(), f"ready: node {node_id}, "
    assert line.startswith(head), line or process.communicate()
    return dict(part.split(" ", 1) for part in line.removeprefix(head).strip().split(", "))


def test_start_prints_ready_and_shuts_down_cleanly_when_it_gets_sigterm(tmp_path: Path) -> None:
    path = properties(tmp_path)
    format_directories(path)
    with started(path) as process:
        addresses = ready(process)
        assert set(addresses) == {"PLAINTEXT", "CONTROLLER"}
        produce(addresses["PLAINTEXT"], "t", [b"x"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_override_takes_precedence_over_the_file(tmp_path: Path) -> None:
    path = properties(tmp_path)
    format_directories(path)
    with started(path, "--override", "num.partitions=4") as process:
        address = ready(process)["PLAINTEXT"]
        produce(address, "t", [b"x"])
        assert topics(address) == {"t": 4}


def test_start_fails_when_the_directory_is_not_formatted(tmp_path: Path) -> None:
    assert "format it first" in fails("start", str(properties(tmp_path)))


def test_start_succeeds_when_its_advice_was_followed(tmp_path: Path) -> None:
    path = properties(tmp_path, controller_quorum_voters="", controller_quorum_bootstrap_servers="127.0.0.1:0")
    command = fails("start", str(path)).strip().rpartition("format it first: ")[2].replace("FILE", str(path))
    command = command.replace("kafkacore", f"{sys.executable} -m kafkacore.tools.main")
    subprocess.run(["bash", "-euc", command], check=True, capture_output=True, timeout=60)
    with started(path) as process:
        assert set(ready(process)) == {"PLAINTEXT", "CONTROLLER"}


def test_start_fails_when_the_directory_belongs_to_another_node(tmp_path: Path) -> None:
    format_directories(properties(tmp_path))
    other = properties(tmp_path, node_id="2", controller_quorum_voters="2@127.0.0.1:0")
    assert "belongs to another node" in fails("start", str(other))


def test_start_fails_when_the_metadata_version_is_too_old(tmp_path: Path) -> None:
    """The start itself must fail. Otherwise a client that waits for the broker would wait for ever."""
    path = properties(tmp_path)
    format_directories(path)
    bootstrap.write_bootstrap(str(tmp_path / "logs"), {"metadata.version": 20}, 0)
    assert "kafka-features upgrade --release-version 3.9" in fails("start", str(path))


def test_start_fails_when_directories_belong_to_two_clusters(tmp_path: Path) -> None:
    one = properties(tmp_path, log_dirs=str(tmp_path / "a"))
    format_directories(one)
    two = properties(tmp_path, log_dirs=str(tmp_path / "b"))
    format_directories(two, "AAAAAAAAAAAAAAAAAAAAAA")
    both = properties(tmp_path, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}")
    assert "belongs to another cluster" in fails("start", str(both))


def test_start_fails_when_another_process_uses_the_directory(tmp_path: Path) -> None:
    path = properties(tmp_path)
    format_directories(path)
    with started(path) as process:
        ready(process)
        assert "in use by another node" in fails("start", str(path))


def test_start_fails_with_advice_when_a_port_is_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = properties(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0")
        format_directories(path)
        said = "Address already in use (another process listens there; choose another port in"
        errors = fails("start", str(path))
        assert errors.startswith(f"kafkacore: cannot listen on PLAINTEXT://127.0.0.1:{port}: {said} listeners,")
        path = properties(tmp_path, metrics_port=str(port))
        errors = fails("start", str(path))
        assert errors.startswith(f"kafkacore: cannot listen on http://127.0.0.1:{port}: {said} metrics.port,")


def test_start_fails_with_the_key_when_a_value_is_wrong(tmp_path: Path) -> None:
    errors = fails("start", str(properties(tmp_path, num_partitions="many")))
    assert "num.partitions=many" in errors and "an int" in errors


def test_start_fails_with_the_path_when_the_file_does_not_exist() -> None:
    assert fails("start", "/nowhere.properties") == (
        "kafkacore: /nowhere.properties: cannot be read: No such file or directory\n"
    )


def test_start_fails_with_the_valid_log_levels_when_the_level_is_unknown(tmp_path: Path) -> None:
    errors = fails("start", str(properties(tmp_path)), env=os.environ | {"KAFKACORE_LOG_LEVEL": "loud"})
    assert errors.startswith("kafkacore: KAFKACORE_LOG_LEVEL=LOUD: must be one of DEBUG, INFO")


def test_start_fails_when_a_security_setting_is_not_supported(tmp_path: Path) -> None:
    protocols = "CONTROLLER:PLAINTEXT,SSL:SSL,OPEN:PLAINTEXT"
    listeners = "SSL://127.0.0.1:0,OPEN://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    secured = properties(
        tmp_path, listeners=listeners, listener_security_protocol_map=protocols, inter_broker_listener_name="OPEN"
    )
    assert "listeners=SSL://127.0.0.1:0: SSL is not supported yet" in fails("start", str(secured))
    authorised = properties(tmp_path, authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    assert "access control is not supported yet" in fails("start", str(authorised))


def test_start_in_zookeeper_mode_fails_when_no_server_answers(tmp_path: Path) -> None:
    [port] = free_ports(1)
    path = zookeeper(tmp_path)
    path.write_text(
        path.read_text().replace("localhost:2181", f"127.0.0.1:{port}") + "zookeeper.connection.timeout.ms=500\n"
    )
    errors = fails("start", str(path))
    assert f"no ZooKeeper server of 127.0.0.1:{port} accepted the session in time: 127.0.0.1:{port} cannot" in errors
    assert "cannot be reached: Connection refused; check zookeeper.connect, and that the servers run" in errors


# --- the roles as separate processes ---


@pytest.fixture
def apart(tmp_path: Path) -> tuple[Path, Path]:
    """Formats the directories of a controller and of a broker. Returns the paths of their server.properties."""
    [port] = free_ports(1)
    made = []
    for name, changes in (
        ("controller", {"process_roles": "controller", "node_id": "9", "listeners": f"CONTROLLER://127.0.0.1:{port}"}),
        ("broker", {"process_roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0"}),
    ):
        directory = tmp_path / name
        directory.mkdir()
        path = properties(directory, controller_quorum_voters=f"9@127.0.0.1:{port}", **changes)
        format_directories(path)
        made.append(path)
    return made[0], made[1]


def test_controller_and_broker_run_as_processes_of_their_own(apart: tuple[Path, Path]) -> None:
    with started(apart[0]) as controller, started(apart[1]) as broker:
        assert set(ready(controller, 9)) == {"CONTROLLER"}
        address = ready(broker)["PLAINTEXT"]
        produce(address, "t", [b"x"])
        assert consume(address, "t", 1) == [b"x"]
        admin = AdminClient({"bootstrap.servers": address})
        [future] = admin.create_topics([NewTopic("u", 3)]).values()
        future.result(20)
        # The controller has answered, and the broker learns about the topic a moment later.
        wait_until(lambda: topics(address) == {"t": 1, "u": 3}, what="the topic on the broker")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0
        controller.send_signal(signal.SIGTERM)
        assert controller.wait(30) == 0


def test_broker_exits_with_a_reason_when_it_finds_no_controller(apart: tuple[Path, Path]) -> None:
    errors = fails("start", str(apart[1]), "--override", "initial.broker.registration.timeout.ms=1000")
    assert "is a majority of the controllers running?" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_broker_ends_at_once_when_it_gets_a_signal_while_it_waits_for_a_controller(
    apart: tuple[Path, Path], number: signal.Signals
) -> None:
    command = [*KAFKACORE, "start", str(apart[1])]
    environment = os.environ | {"KAFKACORE_LOG_LEVEL": "INFO"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while "could not register" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        process.send_signal(number)
        out, errors = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, ""), errors
    assert "was stopped before it was ready" in errors


def test_broker_serves_while_its_controller_is_away_and_follows_it_again(apart: tuple[Path, Path]) -> None:
    with started(apart[1]) as broker:
        with started(apart[0]) as controller:
            ready(controller, 9)
            address = ready(broker)["PLAINTEXT"]
            produce(address, "t", [b"1"])
            controller.kill()
        produce(address, "t", [b"2"])
        with started(apart[0]) as controller:
            ready(controller, 9)
            produce(address, "new", [b"3"])
            assert consume(address, "t", 2) == [b"1", b"2"]
            assert consume(address, "new", 1) == [b"3"]
