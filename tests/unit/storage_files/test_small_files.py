"""The small files of a log directory. They have the same bytes as Apache Kafka's, a crash leaves them whole, and torn
ones are refused."""

import os
import subprocess
import sys
import time

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore.runtime.files import OsFiles, replace
from kafkacore.storage import clean_shutdown, meta_properties, partition_metadata, quorum_state
from kafkacore.storage.checkpoints import RECOVERY_POINT, LeaderEpochCheckpoint, OffsetCheckpoint
from kafkacore.storage.directory_lock import DirectoryLocks
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError
from kafkacore.storage.meta_properties import MetaProperties
from kafkacore.storage.quorum_state import QuorumState

TOPIC_ID = Uuid.parse("AIHeYM4KS66zu6YlUTrHdw")
CHILD_TIMEOUT_S = 20

# Files that Apache Kafka 4.3.1 has written.
KAFKA_META_PROPERTIES = (
    b"#\n#Sat Nov 21 11:48:25 UTC 2026\nnode.id=1\ndirectory.id=AIHeYM4KS66zu6YlUTrHdw\nversion=1\n"
    b"cluster.id=MkU3OEVBNTcwNTJENDM2Qk\n"
)
KAFKA_QUORUM_STATE_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
KAFKA_QUORUM_STATE_1 = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


class CrashingFiles(OsFiles):
    """Stops before a given step, as in a crash. After a restart, the files are those that are on disk at that
    moment."""

    def __init__(self, steps):
        self.left = steps

    def step(self):
        if self.left == 0:
            raise InterruptedError("power cut")
        self.left -= 1

    def write(self, path, data):
        self.step()
        super().write(path, data)

    def rename(self, old, new):
        self.step()
        super().rename(old, new)


def test_replaced_file_is_whole_after_a_power_cut_at_any_step(tmp_path):
    path = tmp_path / "file"
    replace(OsFiles(), str(path), b"old")
    for steps in (0, 1):
        with pytest.raises(InterruptedError):
            replace(CrashingFiles(steps), str(path), b"new")
        assert path.read_bytes() == b"old"
    replace(CrashingFiles(2), str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


# -- meta.properties


def test_meta_properties_are_kafkas(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    properties = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, TOPIC_ID)
    meta_properties.write(str(tmp_path), properties, now_ms=1795261705000)
    assert (tmp_path / "meta.properties").read_bytes() == KAFKA_META_PROPERTIES
    assert meta_properties.read(str(tmp_path)) == properties


def test_meta_properties_of_zookeeper_mode(tmp_path):
    (tmp_path / "meta.properties").write_bytes(b"version=0\nbroker.id=5\n")
    found = meta_properties.read(str(tmp_path))
    assert found == MetaProperties(None, 5, None, version=0)
    assert found.lines() == {"broker.id": "5", "version": "0"}


def test_a_directory_without_meta_properties_is_not_formatted(tmp_path):
    assert meta_properties.read(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty; restore"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=x\n", "node.id is missing"),
        (b"cluster.id=x\nnode.id=1\n", "version is missing: add version=1"),
        (b"version=2\ncluster.id=x\nnode.id=1\n", "version=2 is not known"),
        (b"version=one\n", "version=one is not a whole number"),
        (b"version=1\ncluster.id=x\nnode.id=\n", "node.id= is not a whole number"),
        (b"version=1\ncluster.id=x\nnode.id=" + b"9" * 5000, "is not a whole number of at most 20 digits"),
        (b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n", "directory.id: 'short' is not a UUID"),
        (b"version=1\\u00", "hexadecimal"),
    ],
)
def test_torn_meta_properties_name_the_file_and_the_problem(tmp_path, content, problem):
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(MalformedFileError) as error:
        meta_properties.read(str(tmp_path))
    assert str(tmp_path / "meta.properties") in str(error.value)
    assert problem in str(error.value)


# -- checkpoints


def test_offsets_by_partition(tmp_path):
    checkpoint = OffsetCheckpoint(str(tmp_path), RECOVERY_POINT)
    assert checkpoint.read() == {}
    offsets = {("topic", 0): 5, ("a.topic-1", 11): 2**62}
    checkpoint.write(offsets)
    assert (tmp_path / RECOVERY_POINT).read_bytes() == b"0\n2\ntopic 0 5\na.topic-1 11 4611686018427387904\n"
    assert checkpoint.read() == offsets


def test_leader_epochs(tmp_path):
    checkpoint = LeaderEpochCheckpoint(str(tmp_path))
    checkpoint.write([(0, 0), (3, 17)])
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 17\n"
    assert checkpoint.read() == [(0, 0), (3, 17)]


def test_offsets_with_blanks_a_sign_and_other_line_ends(tmp_path):
    """Apache Kafka's reader splits the line at any white space, and accepts all kinds of line ends."""
    (tmp_path / RECOVERY_POINT).write_bytes(b"0\r\n2\r\na  0\t-1\r\nb 1 7\r\n")
    assert OffsetCheckpoint(str(tmp_path), RECOVERY_POINT).read() == {("a", 0): -1, ("b", 1): 7}


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0\n"])
def test_checkpoint_that_kafka_only_began_is_empty(tmp_path, content):
    (tmp_path / RECOVERY_POINT).write_bytes(content)
    assert OffsetCheckpoint(str(tmp_path), RECOVERY_POINT).read() == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"1\n0\n", "has version '1'"),
        (b"x\n", "has version 'x'"),
        (b"0\n2\nt 0 5\n", "should have 2 entries, but has 1"),
        (b"0\n1\nt 0 5\nt 1 6\n", "should have 1 entries, but has 2"),
        (b"0\n1\nt 0\n", "is not a topic, a partition and an offset"),
        (b"0\n1\nt 0 five\n", "does not contain the expected numbers"),
        (b"0\n2\nt 0 5\nt 1 \xd9\xa5\n", "line 't 1 \u0665' does not contain the expected numbers"),
        (b"0\n1\nt 0 9223372036854775808\n", "does not contain the expected numbers"),
        (b"0\n1\nt 0 " + b"9" * 5000 + b"\n", "does not contain the expected numbers"),
        (b"0\n2\nt 0 5 t\n1 6\n", "line 't 0 5 t' is not a topic"),
        (b"0\n1x\nt 0 5\n", "does not contain the expected numbers"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_torn_checkpoint_names_the_file_and_the_problem(tmp_path, content, problem):
    (tmp_path / RECOVERY_POINT).write_bytes(content)
    with pytest.raises(MalformedFileError) as error:
        OffsetCheckpoint(str(tmp_path), RECOVERY_POINT).read()
    assert str(tmp_path / RECOVERY_POINT) in str(error.value)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"0\n1\n0\n", b"0\n1\n0 x\n", b"0\n1\n0 1 2\n", b"0\n1\n0\x0b1\n", b"0\n1\x0b0 1\n", b"0\n1\n0 -1\n",
        b"0\n1\n-1 0\n", b"0\n1\n2147483648 0\n", b"0\n1\n0 9223372036854775808\n", b"0\n1", b"x",
    ],
)  # fmt: skip
def test_torn_leader_epochs_are_refused(tmp_path, content):
    """The node refuses to start with them, too: tests/fuzz/test_damaged_node.py."""
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)
    with pytest.raises(MalformedFileError):
        LeaderEpochCheckpoint(str(tmp_path)).read()


# -- partition.metadata


def test_partition_metadata_is_kafkas(tmp_path):
    assert partition_metadata.read(str(tmp_path)) is None
    partition_metadata.write(str(tmp_path), TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AIHeYM4KS66zu6YlUTrHdw"
    assert partition_metadata.read(str(tmp_path)) == TOPIC_ID


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty; write it again"),
        (b"version: 1\ntopic_id: AIHeYM4KS66zu6YlUTrHdw", "has version '1'"),
        (b"version: 0\n", "is not a UUID"),
        (b"version: 0\ntopic_id: AIHeYM4KS66", "is not a UUID"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "is not the id of a topic"),
        (b"version 0", "is not a name and a value"),
        (b"\xff: 0", "has version None"),
    ],
)
def test_torn_partition_metadata_names_the_file_and_the_problem(tmp_path, content, problem):
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(MalformedFileError) as error:
        partition_metadata.read(str(tmp_path))
    assert str(tmp_path / "partition.metadata") in str(error.value)
    assert problem in str(error.value)


# -- quorum-state


@pytest.mark.parametrize("epoch", [-1, (1 << 31) - 1, 1 << 31, 1 << 63])
def test_quorum_state_says_what_to_do_when_no_leader_can_be_elected_after_its_epoch(epoch):
    last = QuorumState(1, (1 << 31) - 2, -1, quorum_state.ZERO, (1,))
    assert quorum_state.decode(quorum_state.encode(last, 0)) == last
    with pytest.raises(
        MalformedFileError,
        match=f"/q: has leader epoch {epoch}, .* If this is the only controller, you may remove the file",
    ):
        quorum_state.decode(quorum_state.encode(last._replace(leader_epoch=epoch), 0), "/q")


def test_quorum_state_is_kafkas(tmp_path):
    assert quorum_state.read(str(tmp_path)) is None
    static = QuorumState(leader_id=1, leader_epoch=1, voters=(1,))
    assert quorum_state.encode(static, 0) == KAFKA_QUORUM_STATE_0
    dynamic = QuorumState(leader_id=1, leader_epoch=1)
    assert quorum_state.encode(dynamic, 1) == KAFKA_QUORUM_STATE_1
    assert quorum_state.decode(KAFKA_QUORUM_STATE_0) == static
    assert quorum_state.decode(KAFKA_QUORUM_STATE_1) == dynamic


def test_vote_survives_a_restart(tmp_path):
    for version, voters in ((0, (1, 2, 3)), (1, ())):
        state = QuorumState(-1, 7, 2, TOPIC_ID if version else Uuid(), voters)
        quorum_state.write(str(tmp_path), state, version)
        assert quorum_state.read(str(tmp_path)) == state


@pytest.mark.parametrize("size", range(len(KAFKA_QUORUM_STATE_1)))
def test_a_quorum_state_torn_anywhere_is_refused(tmp_path, size):
    (tmp_path / "quorum-state").write_bytes(KAFKA_QUORUM_STATE_1[:size])
    with pytest.raises(MalformedFileError, match="quorum-state"):
        quorum_state.read(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"[]", b"null", b'{"data_version":2}', b'{"data_version":0}', KAFKA_QUORUM_STATE_1.replace(b'Id":1', b'Id":"1"')],
)
def test_another_json_is_not_a_quorum_state(content):
    with pytest.raises(MalformedFileError):
        quorum_state.decode(content)


# -- .kafka_cleanshutdown


def test_a_clean_shutdown_is_kafkas(tmp_path):
    directory = str(tmp_path)
    assert not clean_shutdown.exists(directory)
    clean_shutdown.write(directory, 11)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":11}'
    assert clean_shutdown.exists(directory)
    assert clean_shutdown.read_epoch(directory) == 11
    clean_shutdown.remove(directory)
    clean_shutdown.remove(directory)
    assert not clean_shutdown.exists(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":0}', b"\xff"])
def test_clean_shutdown_without_an_epoch_counts_as_clean(tmp_path, content):
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert clean_shutdown.exists(str(tmp_path))
    assert clean_shutdown.read_epoch(str(tmp_path)) == clean_shutdown.NO_EPOCH


def test_former_epoch_is_known_only_when_every_directory_was_shut_clean_at_it(tmp_path):
    directories = [str(tmp_path / name) for name in ("a", "b")]
    for directory in directories:
        os.mkdir(directory)
        clean_shutdown.write(directory, 3)
    assert clean_shutdown.common_epoch(directories) == 3
    clean_shutdown.write(directories[1], 4)
    assert clean_shutdown.common_epoch(directories) == clean_shutdown.NO_EPOCH
    clean_shutdown.remove(directories[1])
    assert clean_shutdown.common_epoch(directories) == clean_shutdown.NO_EPOCH


# -- .lock


def test_one_node_at_a_time_within_a_process(tmp_path):
    locks = DirectoryLocks([str(tmp_path)])
    with pytest.raises(LogDirectoryError, match=rf"{tmp_path}: in use by another node.*locked by this process"):
        DirectoryLocks([str(tmp_path)])
    locks.close()
    locks.close()
    DirectoryLocks([str(tmp_path)]).close()


def test_lock_is_found_under_another_path(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    locks = DirectoryLocks([str(tmp_path / "real")])
    with pytest.raises(LogDirectoryError):
        DirectoryLocks([str(tmp_path / "link")])
    locks.close()


def test_all_directories_or_none_are_locked(tmp_path):
    names = [str(tmp_path / name) for name in ("a", "b")]
    for name in names:
        os.mkdir(name)
    held = DirectoryLocks(names[1:])
    with pytest.raises(LogDirectoryError, match=rf"{names[1]}: in use"):
        DirectoryLocks(names)
    DirectoryLocks(names[:1]).close()
    held.close()


def test_one_node_at_a_time_among_processes(tmp_path):
    program = (
        "import sys; from kafkacore.storage.directory_lock import DirectoryLocks;"
        "locks = DirectoryLocks(sys.argv[1:]); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(LogDirectoryError, match="locked by another process"):
            DirectoryLocks([str(tmp_path)])
        child.stdin.close()
        child.wait(CHILD_TIMEOUT_S)
    DirectoryLocks([str(tmp_path)]).close()


def test_a_lock_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(LogDirectoryError, match="make the directory writable for this user, or use another one"):
        DirectoryLocks([str(tmp_path)])
