"""`kafkacore storage info` for damaged or unusual directories. It reports each finding with a path."""

import os
import shutil
import subprocess
import sys

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.config import BrokerConfig
from kafkacore.inspection.directories import describe_directories
from kafkacore.metadata.records import RecordWriter
from kafkacore.protocol.features import LATEST_METADATA_VERSION
from kafkacore.protocol.messages import FeatureLevelRecord
from kafkacore.storage import clean_shutdown, meta_properties, partition_metadata
from kafkacore.storage.bootstrap import encode_bootstrap
from kafkacore.storage.checkpoints import RECOVERY_POINT, REPLICATION_OFFSET, OffsetCheckpoint
from kafkacore.tools.main import main

CLUSTER_ID = "kafkacoreInfoAAAAAAAAA"
CHILD_TIMEOUT_S = 20
LOG = "00000000000000000000"


class Node:
    """The two log directories of a formatted node. `info` checks the exit code, and returns the problems and
    remarks."""

    def __init__(self, root, capsys):
        self.root, self.capsys = root, capsys
        self.properties = root / "server.properties"
        self.properties.write_text(
            "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
            "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\n"
            f"log.dirs={root}/a,{root}/b\n"
        )
        assert main(["storage", "format", "-c", str(self.properties), "-t", CLUSTER_ID]) == 0

    def info(self):
        self.capsys.readouterr()
        code = main(["storage", "info", "-c", str(self.properties)])
        told = {"problem": [], "remark": []}
        under = None
        for line in self.capsys.readouterr().out.replace(f"{self.root}/", "").splitlines():
            if line.startswith("Found "):
                under = told.get(line.split()[1].rstrip(":s"))
            elif line and under is not None:
                under.append(line.strip())
        assert (code == 0) == (not told["problem"])
        return told["problem"], told["remark"]

    def log(self, directory, name, **files):
        """Makes a partition's directory with the given files, by suffix."""
        path = self.root / directory / name
        path.mkdir()
        for suffix, data in files.items():
            (path / f"{LOG}.{suffix}").write_bytes(data)
        return path

    def has_run(self):
        """Makes the directories look as if a node had run and shut down cleanly."""
        (self.root / "a" / "__cluster_metadata-0").mkdir()
        for directory in ("a", "b"):
            clean_shutdown.write(str(self.root / directory), 7)
        self.log("b", "t-0", log=b"", index=b"", timeindex=b"")


@pytest.fixture
def node(tmp_path, capsys):
    return Node(tmp_path, capsys)


def test_sound_directories_get_only_the_lines_of_apache_kafka(node):
    assert node.info() == ([], [])
    node.has_run()
    assert node.info() == ([], [])


def rewrite(node, directory, **changes):
    path = str(node.root / directory)
    meta_properties.write(path, meta_properties.read(path)._replace(**changes), 0)


def test_directories_of_another_node_or_cluster_are_reported(node):
    rewrite(node, "b", cluster_id="anotherClusterAAAAAAAA")
    problems, _ = node.info()
    assert problems[0] == "Mismatched cluster IDs between storage directories."
    assert problems[1].startswith("b/meta.properties: cluster.id=anotherClusterAAAAAAAA, but")
    rewrite(node, "b", cluster_id=CLUSTER_ID, node_id=2)
    problems, _ = node.info()
    assert problems[0] == "Mismatched node IDs between storage directories."
    assert problems[1].startswith("b/meta.properties: node.id=2, but the configuration has node.id=1")
    rewrite(node, "b", node_id=1, directory_id=meta_properties.read(f"{node.root}/a").directory_id)
    (problem,), _ = node.info()
    assert problem.endswith(" is also that of a; one is a copy of the other")


def test_new_directory_is_no_problem_in_zookeeper_mode(tmp_path):
    (tmp_path / "empty").mkdir()
    names = f"{tmp_path}/empty,{tmp_path}/missing"
    said = []
    config = BrokerConfig({"broker.id": "1", "zookeeper.connect": "localhost:2181", "log.dirs": names})
    assert describe_directories(config, said.append)
    assert "Found problem:" not in said
    assert [line for line in said if "formats it" in line] == [
        f"  {tmp_path}/empty is not formatted; the broker formats it when it starts",
        f"  {tmp_path}/missing does not exist; the broker formats it when it starts",
    ]


def test_directory_of_zookeeper_mode_is_reported(node):
    (node.root / "b" / "meta.properties").write_text("version=0\n")
    told = "The configuration is for KRaft mode, but the directories are formatted for ZooKeeper mode."
    (node.root / "a" / "meta.properties").write_text("version=0\n")
    node.log("a", "t-0", log=b"", index=b"", timeindex=b"")
    problems, remarks = node.info()
    # In ZooKeeper mode a directory never has a metadata log, so the tool does not report it as missing.
    assert problems == [told]
    assert any(each.startswith("a: belongs to a broker in ZooKeeper mode") for each in remarks)


def test_torn_meta_properties_is_reported(node):
    (node.root / "b" / "meta.properties").write_text("version=1\n")
    (problem,), _ = node.info()
    assert problem == "Error loading b/meta.properties: node.id is missing"
    (node.root / "b" / "meta.properties").unlink()
    command = f"kafkacore storage format --config FILE --cluster-id {CLUSTER_ID} --ignore-formatted"
    assert node.info() == (["b is not formatted."], [f"format the missing directories with: {command}"])


def test_unclean_shutdown_gets_a_remark(node):
    node.has_run()
    clean_shutdown.remove(f"{node.root}/b")
    told = "b: was not shut down cleanly; the next start recovers its logs"
    assert node.info() == ([], [told])


def test_process_that_uses_a_directory_is_named(node):
    node.has_run()
    clean_shutdown.remove(f"{node.root}/b")
    program = (
        "import sys; from kafkacore.storage.directory_lock import DirectoryLocks\n"
        "locks = DirectoryLocks([sys.argv[1]]); print(flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(node.root / "b")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"\n"
        told = f"b: in use by process {child.pid}; it may change these files during the inspection"
        assert node.info() == ([], [told])
    finally:
        child.stdin.close()
        child.wait(CHILD_TIMEOUT_S)
        child.stdout.close()
    assert len(node.info()[1]) == 1


def test_deleted_future_and_unknown_directories_are_counted(node):
    node.has_run()
    for name in ("t-1.0123456789abcdef0123456789abcdef-delete", "t-2.0123456789abcdef0123456789abcdef-stray"):
        node.log("b", name)
    for number in range(3, 5):
        node.log("b", f"t-{number}.0123456789abcdef0123456789abcdef-future")
    for number in range(12):
        node.log("b", f"strange{number:02}")
    node.log("a", "t-0", log=b"", index=b"", timeindex=b"")
    problems, remarks = node.info()
    assert problems[0] == (
        "b/strange00 is not the directory of a partition, and no node starts while it is there; move it elsewhere"
    )
    assert problems[10] == "... and 2 more unknown directories"
    assert problems[11:] == ["b/t-0: the same partition is in a; move the older of the two directories away"]
    assert [remark.split(":")[1].split()[0] for remark in remarks] == ["1", "2", "1"]
    assert "of deleted partitions" in remarks[0]
    assert "are moving here" in remarks[1]
    assert "assigns elsewhere" in remarks[2]


def test_unreadable_checkpoints_are_reported(node):
    node.has_run()
    (node.root / "a" / RECOVERY_POINT).write_text("0\n2\nt 0 1\n")
    (node.root / "b" / "t-0" / "leader-epoch-checkpoint").write_text("7\n")
    (node.root / "a" / "__cluster_metadata-0" / "quorum-state").write_text("{")
    first, second, third = node.info()[0]
    assert first == f"a/{RECOVERY_POINT}: should have 2 entries, but has 1"
    assert second.startswith("a/__cluster_metadata-0/quorum-state: is not JSON")
    assert third.startswith("b/t-0/leader-epoch-checkpoint: has version '7'")


def test_indexes_of_a_wrong_length_or_without_a_segment_are_reported(node):
    node.has_run()
    node.log("b", "u-0", log=b"", index=b"123", timeindex=bytes(13), txnindex=bytes(35))
    node.log("b", "v-0", index=b"", timeindex=b"")
    node.log("b", "w-0", **{"log": b"", "log.swap": b"", "log.deleted": b""})
    problems, remarks = node.info()
    assert problems == [
        f"b/u-0/{LOG}.index: has 3 bytes, which is not a multiple of an entry's 8",
        f"b/u-0/{LOG}.timeindex: has 13 bytes, which is not a multiple of an entry's 12",
        f"b/u-0/{LOG}.txnindex: has 35 bytes, which is not a multiple of an entry's 34",
        f"b/v-0: {LOG}.index is without a segment",
        f"b/v-0: {LOG}.timeindex is without a segment",
    ]
    assert remarks == [
        f"b/w-0: {LOG}.index is missing; the next start makes it from the segment",
        f"b/w-0: {LOG}.timeindex is missing; the next start makes it from the segment",
        f"b/w-0: {LOG}.log.deleted and 1 more are left half done; the next start finishes or removes it",
    ]


def test_differing_topic_ids_of_one_topic_are_reported(node):
    node.has_run()
    one, other = Uuid.random(), Uuid.random()
    partition_metadata.write(f"{node.root}/b/t-0", one)
    node.log("a", "t-1", log=b"", index=b"", timeindex=b"")
    partition_metadata.write(f"{node.root}/a/t-1", other)
    assert node.info()[0] == [f"b/t-0: topic id {one}, but a/t-1 has {other} for the same topic"]
    partition_metadata.write(f"{node.root}/a/t-1", one)
    node.log("b", "t-2", log=b"", index=b"", timeindex=b"")
    partition_metadata.write(f"{node.root}/b/t-2", other)
    assert node.info()[0] == [f"b/t-2: topic id {other}, but a/t-1 has {one} for the same topic"]
    partition_metadata.write(f"{node.root}/b/t-2", one)
    (node.root / "a" / "t-1" / "partition.metadata").write_text("torn")
    (problem,), _ = node.info()
    assert problem.startswith("a/t-1/partition.metadata: ")


def test_missing_or_torn_metadata_log_is_reported(node):
    node.has_run()
    metadata = node.root / "a" / "__cluster_metadata-0"
    snapshot = metadata / "00000000000000000009-0000000001.checkpoint"
    whole = encode_bootstrap({"metadata.version": 30}, 0)
    snapshot.write_bytes(whole)
    assert node.info() == ([], [])
    snapshot.write_bytes(whole[:-1])
    told = f"a/__cluster_metadata-0/{snapshot.name}"
    assert node.info()[0][-1] == f"{told}: does not end with the footer of a snapshot: it is not complete"
    os.rename(metadata, node.root / "b" / "__cluster_metadata-0")
    missing, *_ = sorted(node.info()[0])
    assert missing.startswith("a/__cluster_metadata-0: the metadata log is missing, though the node has run")
    assert any("is not in metadata.log.dir" in problem for problem in node.info()[0])


def test_metadata_log_that_lost_committed_records_is_reported(node):
    node.has_run()
    metadata = node.root / "a" / "__cluster_metadata-0"
    record = FeatureLevelRecord(name="group.version", feature_level=1)
    batches = []
    for offset in range(3):
        builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=1)
        builder.append(0, None, RecordWriter(LATEST_METADATA_VERSION).encode(record))
        batches.append(builder.build())
    OffsetCheckpoint(str(metadata), REPLICATION_OFFSET).write({("__cluster_metadata", 0): 2})
    segment = metadata / f"{LOG}.log"
    segment.write_bytes(b"".join(batches[:2]) + batches[2][:-1])
    assert node.info()[0] == []
    segment.write_bytes(b"".join([batches[0], batches[1][:-1], b"?", batches[2]]))
    (problem,) = node.info()[0]
    assert problem.startswith(
        f"a/__cluster_metadata-0/{LOG}.log: byte {len(batches[0])}: no whole batch begins at offset 1, but all "
        "records below offset 2 were committed"
    )
    unknown = bytearray(batches[1])
    unknown[16] = 3  # the magic byte; no checksum covers it
    segment.write_bytes(b"".join([batches[0], unknown, batches[2]]))
    (problem,) = node.info()[0]
    assert problem.startswith(f"a/__cluster_metadata-0/{LOG}.log: byte {len(batches[0])}: no whole batch begins at")
    segment.write_bytes(batches[0] + b"?")  # a starting node would delete the valid segment that follows this one
    (metadata / f"{1:020d}.log").write_bytes(b"".join(batches[1:]))
    (problem,) = node.info()[0]
    assert problem.startswith(f"a/__cluster_metadata-0/{LOG}.log: byte {len(batches[0])}: no whole batch begins at")
    (metadata / f"{1:020d}.log").unlink()
    segment.unlink()
    (problem,) = node.info()[0]
    assert problem.startswith("a/__cluster_metadata-0: byte 0: no whole batch begins at offset 0")


def test_torn_bootstrap_checkpoint_is_reported(node):
    node.has_run()
    (node.root / "a" / "bootstrap.checkpoint").write_bytes(b"")
    problems, _ = node.info()
    assert problems[0] == "a/bootstrap.checkpoint: does not begin with the header of a snapshot"


def test_metadata_version_that_is_too_old_is_reported(node):
    bootstrap = node.root / "a" / "bootstrap.checkpoint"
    bootstrap.write_bytes(encode_bootstrap({"metadata.version": 20}, 0))
    (problem,), _ = node.info()
    assert problem.startswith("a/bootstrap.checkpoint: metadata.version 20 is finalised, and 3.9-IV0 (21) to 4.3-IV0")


def test_directory_without_feature_levels_is_reported(node):
    (node.root / "a" / "bootstrap.checkpoint").unlink()
    (problem,), _ = node.info()
    assert problem.startswith("a/bootstrap.checkpoint: the metadata log is empty, and no bootstrap.checkpoint")


def test_feature_levels_are_taken_from_the_snapshot_and_the_log_behind_it(node):
    """Levels in the log after the snapshot override the levels in the snapshot. Levels in the log before the snapshot
    do not count."""
    node.has_run()
    metadata = node.root / "a" / "__cluster_metadata-0"
    snapshot = metadata / "00000000000000000002-0000000001.checkpoint"
    snapshot.write_bytes(encode_bootstrap({"metadata.version": 30}, 0))

    def levels(base_offset, level, **header):
        record = FeatureLevelRecord(name="metadata.version", feature_level=level)
        builder = RecordBatchBuilder(base_offset=base_offset, **header)
        builder.append(0, None, RecordWriter(LATEST_METADATA_VERSION).encode(record))
        return builder.build()

    for suffix in ("index", "timeindex"):
        (metadata / f"{LOG}.{suffix}").touch()
    segment = metadata / f"{LOG}.log"
    segment.write_bytes(levels(0, 31) + levels(1, 32))
    assert node.info() == ([], [])
    segment.write_bytes(levels(0, 31) + levels(1, 32) + levels(2, 33))
    (problem,), _ = node.info()
    assert problem.startswith(
        "a/__cluster_metadata-0: metadata.version 33 is finalised, but only 3.9-IV0 (21) to 4.3-IV0"
    )
    segment.write_bytes(levels(2, 29) + levels(3, 34)[:-1])
    assert node.info() == ([], [])
    # A starting node also refuses the greatest epoch in a batch that the snapshot covers.
    segment.write_bytes(levels(0, 31, partition_leader_epoch=0x7FFFFFFF) + levels(1, 32))
    (problem,), _ = node.info()
    assert problem.startswith(f"a/__cluster_metadata-0/{LOG}.log: has at offset 0 the leader epoch 2147483647")


@pytest.mark.parametrize("others", [False, True])
def test_voter_with_another_directory_id_is_reported(node, others):
    """If this is the only voter, no voter can ever be elected. If there are several, another voter can lead."""
    text = node.properties.read_text().replace("quorum.voters=1@", "quorum.bootstrap.servers=")
    node.properties.write_text(text)
    for name in ("a", "b"):
        shutil.rmtree(node.root / name)
    mine, its = Uuid.random(), Uuid.random()
    voters = [f"1@localhost:9093:{mine}", *([f"2@localhost:9094:{its}"] if others else [])]
    options = ["-c", str(node.properties), "-t", CLUSTER_ID, "--initial-controllers", ",".join(voters)]
    assert main(["storage", "format", *options]) == 0
    assert node.info() == ([], [])
    path = node.root / "a" / "meta.properties"
    path.write_text(path.read_text().replace(str(mine), str(Uuid.random())))
    problems, remarks = node.info()
    (told,) = remarks if others else problems
    assert (problems == []) == others
    assert told.startswith("a/meta.properties: controller 1 has directory id ")
    assert str(mine) in told


def test_metadata_records_of_a_newer_release_are_reported(node):
    node.has_run()
    builder = RecordBatchBuilder(base_offset=5)
    builder.append(0, None, bytes((1, 99, 0)))
    metadata = node.root / "a" / "__cluster_metadata-0"
    for suffix, data in (("log", builder.build()), ("index", b""), ("timeindex", b"")):
        (metadata / f"{LOG}.{suffix}").write_bytes(data)
    (problem,), _ = node.info()
    assert problem.startswith(f"a/__cluster_metadata-0/{LOG}.log: the metadata batch at offset 5 cannot be read: ")


def test_directory_that_cannot_be_written_to_is_reported(node, tmp_path):
    """A read-only mount behaves like this: not even root can write to the directory."""
    info = f"mount --bind -o ro {node.root}/b {node.root}/b && mount -o remount,ro,bind {node.root}/b && "
    info += f"{sys.executable} -m kafkacore.tools.main storage info -c {node.properties}"
    done = subprocess.run(
        ["unshare", "-Urm", "bash", "-c", info], capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False
    )
    if "Found log dir" not in done.stdout:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    assert done.returncode == 1
    assert f"{node.root}/b cannot be written to by this user" in done.stdout
