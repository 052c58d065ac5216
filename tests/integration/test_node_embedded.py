"""Nodes inside a running Python process. The process can run several nodes at a time and stop them, and they leave
nothing behind."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkacore._fast.hot import produce
from kafkacore._fast.log import partition_watch as watch
from kafkacore._fast.plane import inbound, plane
from kafkacore._fast.wait import io
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.features import FEATURES, LATEST_METADATA_VERSION, METADATA_VERSION, MINIMUM_METADATA_VERSION
from kafkacore.protocol.messages import AccessControlEntryRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.process import Runtime
from kafkacore.server.node import Node, NodeFailed, StartAbandoned
from kafkacore.storage import bootstrap, clean_shutdown
from kafkacore.storage.directory_load import DirectoryLoad
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.log_manager import LogManager
from kafkacore.tools import dev
from processes import wait_until

pytestmark = pytest.mark.timeout(90)


def node(directory: Path, *overrides: str) -> Node:
    directory.mkdir(exist_ok=True)
    config = dev.configuration(str(directory), 0, list(overrides))
    dev.prepare(config)
    return Node(config)


def produce_to(running: Node, topic: str) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap or "", "acks": "all"})
    failures: list[Any] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []


def test_nodes_in_one_process_share_threads_and_nothing_else(tmp_path: Path) -> None:
    with node(tmp_path / "a") as one, node(tmp_path / "b") as other:
        assert one.bootstrap != other.bootstrap
        for running in (one, other):
            [(name, error, _)] = running.create_topics([("the-same", 2)])
            assert (name, error) == ("the-same", ErrorCode.NONE)
            produce_to(running, "the-same")
        [(_, again, _)] = one.create_topics([("the-same", 2)])
        assert again == ErrorCode.TOPIC_ALREADY_EXISTS


def test_node_leaves_nothing_when_it_stops_and_starts_again(tmp_path: Path) -> None:
    def left() -> object:
        gc.collect()
        return plane.live(), inbound.live(), watch.live(), produce.live(), io.live_count(), Runtime._shared

    before = left()  # the broker that all tests share may be running, and a failed test may still hold objects
    running = node(tmp_path / "a")
    for _ in range(3):
        running.start()
        produce_to(running, "t")
        running.stop()
        running.stop()
        assert running.bootstrap is None
    assert left() == before


def test_refused_start_leaves_the_clean_shutdown_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the file that marks a clean shutdown, the node would start again as after a crash. Partitions with
    eligible leader replicas would then lose their ISRs."""
    running = node(tmp_path / "a")
    with running:
        produce_to(running, "t")
    epoch = clean_shutdown.read_epoch(str(tmp_path / "a"))
    assert epoch > 0
    level = FEATURES[METADATA_VERSION]
    with monkeypatch.context() as older:
        older.setitem(FEATURES, METADATA_VERSION, level._replace(highest=level.highest - 1))
        with pytest.raises(NodeFailed, match="run a release that knows this level"):
            running.start()
    refused = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(refused) == 1 and refused[0].exc_info is None  # reported once, and without a traceback
    assert clean_shutdown.read_epoch(str(tmp_path / "a")) == epoch
    with running:
        produce_to(running, "t")
    assert clean_shutdown.read_epoch(str(tmp_path / "a")) > epoch


def test_start_ends_when_it_was_abandoned_just_before(tmp_path: Path) -> None:
    running = node(tmp_path / "a")
    running.abandon_start()
    with pytest.raises(StartAbandoned):
        running.start()
    with running:
        produce_to(running, "t")


def test_start_ends_after_one_log_when_it_is_abandoned_during_the_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = node(tmp_path / "a", "num.recovery.threads.per.data.dir=1")
    with running:
        for number in range(3):
            produce_to(running, f"t-{number}")
        running.kill()
    load, abandon_load = DirectoryLoad._load, LogManager.abandon_load
    is_abandoned = threading.Event()
    loaded: list[Any] = []

    def load_when_abandoned(self: DirectoryLoad, found: Any, progress: Any) -> None:
        running.abandon_start()
        is_abandoned.wait(20)
        load(self, found, progress)
        loaded.extend(found)

    def abandon(self: LogManager) -> None:
        abandon_load(self)
        is_abandoned.set()

    with monkeypatch.context() as slow:
        slow.setattr(DirectoryLoad, "_load", load_when_abandoned)
        slow.setattr(LogManager, "abandon_load", abandon)
        with pytest.raises(StartAbandoned):
            running.start()
    assert len(loaded) <= 1
    assert not clean_shutdown.exists(str(tmp_path / "a"))
    with running:
        assert {f"t-{number}" for number in range(3)} <= {log.topic for log in running.broker._logs._manager}
        produce_to(running, "t-0")


def bootstrapped(directory: Path, level: int, *records: Any) -> None:
    """Returns a node that has never run. Its directories are formatted with this metadata.version and these records."""
    bootstrap.write_bootstrap(str(directory), {METADATA_VERSION: level}, 0, more=records)


ACL = AccessControlEntryRecord(
    id=Uuid(b"a" * 16), resource_type=2, resource_name="t", pattern_type=3, principal="User:ann", host="*", operation=3,
    permission_type=3,
)  # fmt: skip


def test_start_is_refused_when_the_cluster_has_acls_that_nobody_enforces(tmp_path: Path) -> None:
    refused = node(tmp_path / "a")
    bootstrapped(tmp_path / "a", LATEST_METADATA_VERSION.level, ACL)
    with pytest.raises(NodeFailed, match=r"has 1 ACL.*ignore\.acls=true"):
        refused.start()
    with node(tmp_path / "a", "ignore.acls=true") as served:
        produce_to(served, "t")


def test_start_is_refused_when_the_cluster_is_below_the_oldest_metadata_version(tmp_path: Path) -> None:
    refused = node(tmp_path / "a")
    bootstrapped(tmp_path / "a", MINIMUM_METADATA_VERSION.level - 1)
    with pytest.raises(NodeFailed, match=r"kafka-features upgrade --release-version 3\.9"):
        refused.start()


def test_start_is_refused_when_another_node_of_the_process_uses_the_directory(tmp_path: Path) -> None:
    with node(tmp_path / "a") as one:
        second = Node(one.config)
        with pytest.raises(LogDirectoryError, match="in use by another node"):
            second.start()
        produce_to(one, "t")


def test_start_raises_when_the_node_runs(tmp_path: Path) -> None:
    with node(tmp_path / "a") as one, pytest.raises(RuntimeError, match="runs already"):
        one.start()


def test_node_loses_the_logs_of_a_failed_disk_and_ends_when_the_last_disk_fails(tmp_path: Path) -> None:
    faults: list[BaseException] = []
    dirs = f"log.dirs={tmp_path}/a,{tmp_path}/b", f"metadata.log.dir={tmp_path}/m"
    with node(tmp_path / "m", *dirs) as one:
        one.on_fault = faults.append
        assert one.create_topics([("t", 6)])[0][1] == ErrorCode.NONE
        broker = one._broker
        assert broker is not None

        def partitions() -> list[Any]:
            image = broker.context.image
            topic = image.topic("t")
            return [image.partition_at(row) for row in topic.partition_rows] if topic is not None else []

        # The controller learns which directory each replica is in.
        wait_until(lambda: len({each.directories for each in partitions()}) == 2)
        first, second = broker._logs._manager.native_directories
        first.fail(5)
        wait_until(lambda: sum(each.leader == -1 for each in partitions()) == 3)
        assert faults == []
        second.fail(5)
        wait_until(lambda: len(faults) == 1)


def test_ten_thousand_partitions_are_served_at_once_when_they_are_created(tmp_path: Path) -> None:
    with node(tmp_path / "a") as one:
        started = time.monotonic()
        told = one.create_topics([(f"topic-{number}", 10) for number in range(900)])
        assert {error for _, error, _ in told} == {0}
        # Apache Kafka needs minutes for this. The limit is far above the time that our node needs, and far below
        # Kafka's.
        assert time.monotonic() - started < 20
        produce_to(one, "topic-899")
