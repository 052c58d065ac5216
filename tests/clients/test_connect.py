"""Kafka Connect 4.3 in distributed mode: groups of the protocol "connect", its compacted topics and its commits."""

import json
import urllib.error
import urllib.request

import pytest

from brokers import APACHE, java, need_jars
from processes import Child, free_ports, wait_until

RELEASE = APACHE["apache-4.3"]
START_S, PATIENCE_S = 120, 60
CONFLICT = 409
LINES = [f"line {number}" for number in range(500)]


class Worker:
    """A Connect worker process, driven by its REST interface."""

    def __init__(self, broker, name, directory):
        need_jars(RELEASE)
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "bootstrap.servers": broker.bootstrap, "group.id": name, "listeners": self.url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": 200, "plugin.discovery": "service_load",
        }  # fmt: skip
        for kind in ("offset", "config", "status"):
            settings |= {f"{kind}.storage.topic": f"{name}-{kind}", f"{kind}.storage.replication.factor": 1}
        file = directory / f"worker-{port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [*java(RELEASE, "256m"), "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        self.child = Child(["setpriv", "--pdeathsig", "KILL", "--", *command], directory / f"worker-{port}.log")
        self.child.wait_ready(self.in_group, START_S, "a worker that takes connectors")

    def ask(self, method, path, body=None):
        """Repeats the request while the worker answers that it is busy with its group."""
        answers = wait_until(lambda: self.try_to_ask(method, path, body), PATIENCE_S, f"an answer to {method} {path}")
        return answers[0]

    def try_to_ask(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return [json.loads(answer.read() or "null")]
        except urllib.error.HTTPError as error:
            if error.code != CONFLICT:
                raise
            return []

    def in_group(self):
        """Whether the worker has joined its group and read its configuration; its interface answers earlier."""
        try:
            return bool(self.try_to_ask("GET", "/connectors", None))
        except OSError:
            return False

    def settle(self, connector, **config):
        self.ask("PUT", f"/connectors/{connector}/config", {"tasks.max": 1, **config})

    def offsets(self, connector):
        return [each["offset"] for each in self.ask("GET", f"/connectors/{connector}/offsets")["offsets"]]


@pytest.fixture
def worker(broker, topic_name, tmp_path):
    one = Worker(broker, topic_name, tmp_path)
    yield one
    one.child.terminate()


def test_connect_worker_resumes_where_its_predecessor_stopped(worker, broker, topic_name, tmp_path):
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    sink.touch()

    def carried():
        return sink.read_text().splitlines()

    source.write_text("".join(f"{line}\n" for line in LINES[:300]))
    worker.settle("source", **{"connector.class": "FileStreamSource", "file": str(source), "topic": topic_name})
    worker.settle("sink", **{"connector.class": "FileStreamSink", "file": str(sink), "topics": topic_name})
    wait_until(lambda: carried() == LINES[:300], PATIENCE_S, "the first lines' way through the topic")
    wait_until(
        lambda: worker.offsets("source") == [{"position": source.stat().st_size}], PATIENCE_S, "the source's offset"
    )
    wait_until(lambda: worker.offsets("sink") == [{"kafka_offset": 300}], PATIENCE_S, "the sink's offset")
    worker.child.terminate()

    with source.open("a") as more:
        more.writelines(f"{line}\n" for line in LINES[300:])
    successor = Worker(broker, topic_name, tmp_path)
    try:
        wait_until(lambda: carried() == LINES, PATIENCE_S, "the other lines' way, none of them twice")
        wait_until(lambda: successor.offsets("sink") == [{"kafka_offset": 500}], PATIENCE_S, "the sink's offset")
    finally:
        successor.child.terminate()
