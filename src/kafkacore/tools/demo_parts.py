"""The parts of the demo: a node as a child process, a writer, a reader, and functions that print."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from kafkacore.tools.start import LOG_LEVEL

PATIENCE_S: Final = 30.0
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class DemoFailedError(Exception):
    """The demo failed. The message says which records were lost, or which part did not answer."""


class DemoNode:
    """`kafkacore dev` as a child process that ends with this process. A restart keeps the port and the directory."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = _NONE) -> None:
        self.directory, self.settings = directory, settings
        self.process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""
        self.pid = 0

    def start(self) -> float:
        """Starts the node. Every later start uses the port of the first start. Returns the time in seconds until the
        node was ready."""
        began = time.perf_counter()
        self.launch()
        self.wait_ready()
        return time.perf_counter() - began

    def launch(self) -> None:
        command = [sys.executable, "-m", "kafkacore.tools.main", "dev", "--json", "--with-parent"]
        command += ["--dir", str(self.directory)]
        for key, value in self.settings.items():
            command += ["--override", f"{key}={value}"]
        if self.bootstrap:
            command += ["--port", self.bootstrap.rsplit(":", 1)[1]]
        # The demo kills processes and reports this itself. Warnings of other processes about lost connections would
        # only confuse the user.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env={LOG_LEVEL: "ERROR", **os.environ})

    def wait_ready(self) -> None:
        """Waits until the node is ready. Raises DemoFailedError if the process ends first."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise DemoFailedError("the node did not start; its output is above")
        ready = orjson.loads(line)
        self.bootstrap, self.pid = ready["bootstrap"] or "", ready["pid"]

    def kill(self) -> None:
        """Sends SIGKILL if the process is running. The process cannot write anything afterwards."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._close()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


class Writer:
    """A librdkafka producer that spreads lines over the partitions in turn, and remembers the acknowledged lines."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, properties: dict[str, object]) -> None:
        from confluent_kafka import Producer

        self.topic, self.partitions = topic, partitions
        self.acknowledged: dict[int, int] = {}
        self._next = 0
        settings: dict[str, object] = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}
        settings |= {"queue.buffering.max.messages": 100_000, "reconnect.backoff.max.ms": 100, "log_level": 0}
        self._producer = Producer(settings | properties)

    def write(self, lines: list[bytes], *, flush: bool = True) -> None:
        """Sends lines. Waits while librdkafka's queue is full, and with `flush` also until all lines are
        acknowledged."""
        for line in lines:
            partition = self._next % self.partitions
            while not self._accepted(line, partition, self._next):
                self._producer.poll(0.1)
            self._next += 1
            if self._next % 1000 == 0:
                self._producer.poll(0)
        if flush and self._producer.flush(PATIENCE_S):
            raise DemoFailedError(f"{len(self._producer):,} records were not acknowledged within {PATIENCE_S:.0f} s")

    def wait_for(self, count: int) -> None:
        """Waits until `count` records are acknowledged."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < count:
            if time.monotonic() > deadline:
                raise DemoFailedError(f"{count:,} records were not acknowledged within {PATIENCE_S:.0f} s")
            self._producer.poll(0.01)

    def _accepted(self, line: bytes, partition: int, number: int) -> bool:
        def delivered(error: Any, message: Any) -> None:
            if error is None and self.partitions == 1:
                self.acknowledged[message.offset()] = number

        try:
            self._producer.produce(self.topic, line, partition=partition, on_delivery=delivered)
        except BufferError:
            return False
        return True


def create_topic(
    bootstrap: str, name: str, partitions: int, replicas: int = 1, configs: Mapping[str, str] = _NONE
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, replicas, config=dict(configs))])[name].result(PATIENCE_S)


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """Returns the first `count` values of a partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False, "log_level": 0,
        "check.crcs": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(min(10_000, count - len(found)), PATIENCE_S)
        if not messages:
            raise DemoFailedError(f"{topic}-{partition}: only {len(found):,} of {count:,} records arrived")
        found += [message.value() or b"" for message in messages if not message.error()]
    consumer.close()
    return found


def check_same(found: list[bytes], sent: list[bytes]) -> None:
    if found == sent:
        return
    at = next((n for n, (a, b) in enumerate(zip(found, sent, strict=False)) if a != b), min(len(found), len(sent)))
    raise DemoFailedError(f"the records that were read differ from those that were sent, first at record {at:,}")


def report(what: str, text: list[bytes], took_s: float) -> None:
    size_mb = sum(map(len, text)) / 1e6
    say(f"{what:<48}{took_s:6.2f} s {len(text) / took_s:12,.0f} records/s {size_mb / took_s:8.1f} MB/s")


def heading(text: str) -> None:
    say(f"\n{text}")


def say(line: str) -> None:
    print(line, flush=True)


def wait_for(reached: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
    """Waits until the condition is true. Raises DemoFailedError on timeout."""
    deadline = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > deadline:
            raise DemoFailedError(f"{what}: this did not happen within {limit_s:.0f} s")
        time.sleep(0.01)
