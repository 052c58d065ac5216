"""A node with several log directories (KIP-112, KIP-858). A directory fails, and later comes back."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import BrokerHeartbeatResponse, PartitionRecord, RemoveTopicRecord, TopicRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.broker import BrokerServer
from kafkacore.storage.errors import LogDirectoryError
from lone_broker import Started
from processes import wait_until
from two_directories import Client, Directories

pytestmark = pytest.mark.timeout(90)
OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
ONLY = Uuid(b"d" * 16)  # the id of the log directory of a broker alone


def spread(assigned: list[str]) -> bool:
    return sorted(set(assigned)) == ["a", "b"]


def test_partitions_of_a_failed_disk_are_offline_and_the_others_serve(tmp_path: Path) -> None:
    with Directories(tmp_path) as node:
        node.create("t", 4)
        node.await_assigned("t", spread)
        there = {index: node.directory_of("t", index) for index in range(4)}
        assert [node.produce("t", index) for index in range(4)] == [0] * 4
        node.fail("a")
        lost = sorted(index for index in there if there[index] == "a")
        wait_until(lambda: [each.partition for each in node.partitions("t") if each.leader == -1] == lost)
        for index in range(4):
            expected = OFFLINE if index in lost else ErrorCode.NONE
            told = node.produce("t", index), node.fetch("t", index)[0], node.latest("t", index)
            assert told == (expected, expected, expected)
            # A client whose leader epoch is old gets the storage error. It does not get the error about its epoch.
            assert node.latest("t", index, 0) == expected
        assert node.offline_replicas("t") == lost
        described = node.describe()
        assert (described["a"].error_code, described["a"].topics, described["b"].error_code) == (OFFLINE, [], 0)
        assert described["b"].total_bytes >= described["b"].usable_bytes > 0
        # New partitions go to a directory that works.
        node.create("u", 3)
        assert {node.directory_of("u", index) for index in range(3)} == {"b"}
        assert node.faults == []


def test_returned_directory_has_all_its_records(tmp_path: Path) -> None:
    node = Directories(tmp_path)
    with node:
        node.create("t", 4)
        node.await_assigned("t", spread)
        assert [node.produce("t", index, b"%d" % index) for index in range(4)] == [0] * 4
        node.fail("a")
        wait_until(lambda: sum(each.leader == -1 for each in node.partitions("t")) == 2)
    with node:
        wait_until(lambda: all(each.leader == 1 for each in node.partitions("t")))
        assert [node.read("t", index, 1) for index in range(4)] == [[b"%d" % index] for index in range(4)]
        assert [node.produce("t", index) for index in range(4)] == [0] * 4


@pytest.mark.parametrize("unusable", ["meta.properties", ".lock"])
def test_start_without_a_directory_makes_no_second_log_of_its_partitions(tmp_path: Path, unusable: str) -> None:
    node = Directories(tmp_path)
    with node:
        node.create("t", 4)
        node.await_assigned("t", spread)
        there = {index: node.directory_of("t", index) for index in range(4)}
        assert [node.produce("t", index, b"%d" % index) for index in range(4)] == [0] * 4
    # Damages a file, as a disk that returns wrong data would.
    file = tmp_path / "a" / unusable
    file.rename(tmp_path / "kept")
    file.mkdir()
    with node:
        # The node shut down the other directories cleanly, but it starts as after a crash, because records in "a" may
        # be lost (KIP-966).
        assert node.broker.registrar.lifecycle.previous_broker_epoch == -1
        for index in range(4):
            expected = OFFLINE if there[index] == "a" else ErrorCode.NONE
            assert (node.produce("t", index), node.fetch("t", index)[0]) == (expected, expected)
        assert node.describe()["a"].error_code == OFFLINE
        node.create("new", 2)
        assert {node.directory_of("new", index) for index in range(2)} == {"b"}
        assert node.produce("new", 0) == 0
    file.rmdir()
    (tmp_path / "kept").rename(file)
    with node:
        wait_until(lambda: all(each.leader == 1 for each in node.partitions("t")))
        assert [node.read("t", index, 1)[0] for index in range(4)] == [b"%d" % index for index in range(4)]
        assert node.assigned("t") == [there[index] for index in range(4)]


def test_no_move_begins_while_a_directory_is_offline(tmp_path: Path) -> None:
    with Directories(tmp_path, f"log.dirs={tmp_path}/a,{tmp_path}/b,{tmp_path}/c") as node:
        node.create("t", 3)
        wait_until(lambda: sorted(node.assigned("t")) == ["a", "b", "c"])
        moving = next(index for index in range(3) if node.directory_of("t", index) == "b")
        node.fail("a")
        wait_until(lambda: node.describe()["a"].error_code == OFFLINE)
        # A file of an earlier move may be in the offline directory.
        assert node.alter("t", moving, str(tmp_path / "c")) == OFFLINE
        assert node.alter("t", moving, str(tmp_path / "b")) == ErrorCode.NONE  # the current directory of the replica


def test_node_without_any_directory_does_not_start(tmp_path: Path) -> None:
    node = Directories(tmp_path)
    for name in "ab":
        (tmp_path / name / "meta.properties").unlink()
        (tmp_path / name / "meta.properties").mkdir()
    with pytest.raises(LogDirectoryError, match=r"no directory of log\.dirs is usable"):
        node.start()


def test_node_stops_when_the_directory_of_its_metadata_log_fails(tmp_path: Path) -> None:
    node = Directories(tmp_path, f"log.dirs={tmp_path}/m,{tmp_path}/a")
    with node:
        node.create("t", 2)
        node.fail("m")
        wait_until(lambda: len(node.faults) == 1)
        told = str(node.faults[0])
        assert f"the metadata log's directory {tmp_path}/m has failed: Input/output error; put that right" in told


def test_replica_in_an_unexpected_directory_is_served_and_reported(tmp_path: Path) -> None:
    node = Directories(tmp_path)
    with node:
        node.create("t", 1)
        node.await_assigned("t", lambda assigned: "?" not in assigned)
        source = node.directory_of("t", 0)
        assert node.produce("t", 0, b"kept") == 0
    target = "b" if source == "a" else "a"
    shutil.move(tmp_path / source / "t-0", tmp_path / target / "t-0")
    with node:
        assert node.read("t", 0, 1) == [b"kept"]
        node.await_assigned("t", lambda assigned: assigned == [target])


def test_full_disk_takes_only_its_own_logs_offline(tmp_path: Path) -> None:
    """One of the two directories is on a real file system of 2 MiB."""
    mounted = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no user namespaces here: {mounted.stderr.decode().strip()}")
    (tmp_path / "a").mkdir()
    overrides = [f"log.dirs={tmp_path}/a,{tmp_path}/b", f"metadata.log.dir={tmp_path}/m"]
    arguments = " ".join(f"--override {each}" for each in overrides)
    script = f"""
        mount -t tmpfs -o size=2m none {tmp_path}/a
        exec {sys.executable} -m kafkacore.tools.main dev --json --dir {tmp_path}/m --topic t:2 {arguments}
    """
    running = subprocess.Popen(
        ["unshare", "-Urm", "bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        client = Client(json.loads(running.stdout.readline())["bootstrap"])
        shown = client.describe()
        [small] = [each.partition_index for each in shown["a"].topics[0].partitions]
        value = os.urandom(100_000)
        for _ in range(100):
            error = client.produce("t", small, value)
            if error:
                break
        assert error == OFFLINE
        wait_until(lambda: client.offline_replicas("t") == [small])
        assert client.fetch("t", small)[0] == client.produce("t", small) == OFFLINE
        assert [client.produce("t", 1 - small, value) for _ in range(30)] == [0] * 30
        assert client.describe()["a"].error_code == OFFLINE
    finally:
        running.terminate()
        _, said = running.communicate(timeout=30)
    assert running.returncode == 0
    assert f"the log directory {tmp_path}/a and its logs (1) are offline: No space left on device" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("served", ["serve", "punt"])
@pytest.mark.parametrize("acks", [1, -1])
def test_failed_sync_is_reported_and_never_retried_when_each_answer_waits_for_a_flush(
    tmp_path: Path, acks: int, served: str
) -> None:
    disk = SimulatedDisk()
    started = Started(tmp_path, disk, log_flush_interval_messages="1")
    try:
        started.loop.call(started.broker.plane.native.publish_gate, GatePolicy(served))
        started.create("t")
        client = Client(started.bootstrap)
        partition = started.broker.replicas.by_name("t", 0)
        assert partition is not None
        for number in range(3):
            assert client.produce("t", 0, acks=acks) == 0
            assert partition.synced_offset == number + 1
        disk.fail("sync", errno.EIO)
        assert client.produce("t", 0, acks=acks) == OFFLINE
        disk.fail("sync", 0)
        assert client.produce("t", 0, acks=acks) == OFFLINE
        assert (partition.synced_offset, partition.directory.offline_errno) == (3, errno.EIO)
    finally:
        started.stop()


def test_node_stops_when_it_cannot_report_a_failed_directory(tmp_path: Path) -> None:
    started = Started(tmp_path, log_dir_failure_timeout_ms="200")
    try:
        faults: list[BaseException] = []
        started.broker._on_fault = faults.append
        started.records.BrokerHeartbeatRequest = lost  # type: ignore[method-assign]
        started.loop.call(started.broker.directory_failed, ONLY)
        wait_until(lambda: len(faults) == 1)
        assert "within log.dir.failure.timeout.ms=200" in str(faults[0])
    finally:
        started.stop()


def test_partition_is_not_fetched_when_the_failure_of_its_directory_is_reported(tmp_path: Path) -> None:
    started = Started(tmp_path)
    broker = started.broker
    row = PartitionRecord(
        topic_id=Uuid(b"t" * 16), partition_id=0, replicas=[2, 1], isr=[2, 1], leader=2, directories=[ONLY] * 2
    )
    sources = []

    def report(request: Any) -> BrokerHeartbeatResponse:
        if request.offline_log_dirs:
            sources.append(broker.fetchers.source_of(partition))
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)

    try:
        started.loop.call(started.records.commit, TopicRecord(name="t", topic_id=row.topic_id), row)
        partition = wait_until(lambda: broker.replicas.by_name("t", 0))
        wait_until(lambda: broker.fetchers.source_of(partition) == 2)
        started.records.BrokerHeartbeatRequest = report  # type: ignore[method-assign]
        started.loop.call(broker.directory_failed, ONLY)
        wait_until(lambda: sources)
        assert sources[0] == -1, "the fetches of an idle partition would keep the broken replica in the ISR"
    finally:
        started.stop()


def test_topic_is_deleted_when_it_is_removed_while_the_starting_broker_loads_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started(tmp_path)
    started.create("t")
    assert Client(started.bootstrap).produce("t", 0) == 0
    topic_id = started.broker.context.image.topic("t").topic_id
    manager = started.broker._logs._manager
    started.stop()
    manager.close()
    load = BrokerServer._load

    def load_slowly(broker: BrokerServer) -> None:
        row = PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], leader=1, directories=[ONLY])
        commit(broker, TopicRecord(name="t", topic_id=topic_id), row)
        load(broker)
        assert broker._logs.find("t", 0) is not None
        commit(broker, RemoveTopicRecord(topic_id=topic_id))

    def commit(broker: BrokerServer, *records: Any) -> None:
        async def apply() -> None:
            broker._publisher.apply(records, broker._publisher.applied_offset + 1, 1, 1)

        broker.plane.loop.run(apply(), 10)

    monkeypatch.setattr(BrokerServer, "_load", load_slowly)
    started = Started(tmp_path)
    try:
        wait_until(lambda: started.broker._logs.find("t", 0) is None)
        assert not (tmp_path / "t-0").exists()
    finally:
        started.stop()


def lost(request: object) -> None:
    raise TimeoutError("lost")


def test_node_goes_on_when_the_controller_knows_of_the_failed_directory(tmp_path: Path) -> None:
    started = Started(tmp_path, log_dir_failure_timeout_ms="1")
    try:
        faults: list[BaseException] = []
        started.broker._on_fault = faults.append
        started.broker.registrar.lifecycle.offline_log_dirs[ONLY] = True
        started.loop.call(started.broker.directory_failed, ONLY)
        [deadline] = wait_until(lambda: started.broker.registrar._registrar._deadlines)
        wait_until(lambda: started.loop.loop.time() > deadline.when() + 0.1)
        assert faults == []
    finally:
        started.stop()
