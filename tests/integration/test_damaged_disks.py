"""A node with truncated files, or on a disk that is full or read-only. The node either starts or reports the
problem."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkacore.server.node import Node
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.tools import dev

SMALL_SEGMENTS = ["log.segment.bytes=1048576"]
VALUE = os.urandom(1000)  # incompressible
PATIENCE_S = 20


def started(directory: Path) -> Node:
    config = dev.configuration(str(directory), 0, SMALL_SEGMENTS)
    dev.prepare(config)
    node = Node(config)
    node.start()
    return node


def produce_until(bootstrap: str, enough: int) -> dict[int, bytes]:
    """Produces until the broker has acknowledged `enough` records, or refuses one. Returns the acknowledged records by
    offset."""
    acknowledged: dict[int, bytes] = {}
    failed: list[str] = []
    producer = Producer({
        "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 2000, "log_level": 0,
        "queue.buffering.max.messages": 1000,
    })  # fmt: skip

    def delivered(error, message):
        if error is None:
            acknowledged[message.offset()] = message.value()
        else:
            failed.append(str(error))

    for number in range(enough):
        while not failed and len(producer) > 100:
            producer.poll(0.01)
        if failed:
            break
        producer.produce("t", b"%d:" % number + VALUE, partition=0, on_delivery=delivered)
    producer.flush(PATIENCE_S)
    return acknowledged


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), PATIENCE_S)
        assert messages, f"only {len(found)} of {count} records came"
        assert [message.error() for message in messages if message.error()] == []
        found += [message.value() for message in messages]
    consumer.close()
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of a node that has shut down cleanly. It contains a log of several segments."""
    directory = tmp_path_factory.mktemp("used")
    node = started(directory)
    assert node.bootstrap is not None
    assert len(produce_until(node.bootstrap, 2500)) == 2500
    node.stop()
    return directory


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_node_starts_or_names_the_file_when_any_file_is_truncated(used: Path, tmp_path: Path, clean: bool) -> None:
    files = [path for path in sorted(used.rglob("*")) if path.is_file() and path.stat().st_size]
    assert len(files) > 15
    refused, unnamed = set(), []
    for path in files:
        size = path.stat().st_size
        for length in sorted({0, size // 2, size - 1}):
            directory = tmp_path / "node"
            shutil.copytree(used, directory)
            if not clean:
                (directory / ".kafka_cleanshutdown").unlink()
            cut = directory / path.relative_to(used)
            if cut.exists():
                os.truncate(cut, length)
            try:
                started(directory).stop()
            except LogDirectoryError as error:
                refused.add(f"{path.parent.name}/{path.name}" if path.suffix == ".log" else path.name)
                if not str(error).startswith(f"{cut}: "):
                    unnamed.append((path.name, length, str(error)))
            shutil.rmtree(directory)
    assert unnamed == []
    # A write always replaces each of these files as a whole, and no other file contains their data. The metadata log is
    # in this list because damage to it loses committed records.
    assert refused == {
        "__cluster_metadata-0/00000000000000000000.log", "bootstrap.checkpoint", "leader-epoch-checkpoint",
        "meta.properties", "partition.metadata", "quorum-state",
    }  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts three nodes, one after another, on a disk of 6 MiB. The disk is read-only for the second node, and larger
    for the third. Each node prints its address."""
    mounted = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no user namespaces here: {mounted.stderr.decode().strip()}")
    node = f"{sys.executable} -m kafkacore.tools.main dev --json --dir ."
    script = f"""
        mount -t tmpfs -o size=6m none . && cd "$PWD"
        {node}; echo "the first ended with $?" >&2
        mount -o remount,ro .
        {node}; echo "the second ended with $?" >&2
        mount -o remount,rw,size=64m .
        exec {node}
    """
    with process(["unshare", "-Urm", "bash", "-c", script], tmp_path) as running:
        yield running


@contextmanager
def process(command: list[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def test_full_and_read_only_disks_stop_the_node_without_losing_records(small_disk: subprocess.Popen[str]) -> None:
    assert small_disk.stdout is not None
    acknowledged = produce_until(json.loads(small_disk.stdout.readline())["bootstrap"], 10_000)
    assert 3000 < len(acknowledged) < 7000
    found = consume(json.loads(small_disk.stdout.readline())["bootstrap"], max(acknowledged) + 1)
    assert [offset for offset, value in acknowledged.items() if found[offset] != value] == []
    small_disk.terminate()
    _, said = small_disk.communicate(timeout=PATIENCE_S)
    full, read_only = said.split("the first ended with 1\n")
    assert "No space left on device; put that right, and start the node again\n" in full
    assert "Traceback" not in said
    assert read_only.startswith("kafkacore: ") and "Read-only file system; make the directory writable" in read_only
    assert "the second ended with 1\n" in read_only
