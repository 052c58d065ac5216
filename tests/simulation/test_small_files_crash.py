"""Power cuts at every step of the writes of small files. Afterwards each file is whole, and has either its old or its
new content."""

import random

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore.config import BrokerConfig
from kafkacore.storage import bootstrap, clean_shutdown, meta_properties, partition_metadata, quorum_state
from kafkacore.storage.checkpoints import RECOVERY_POINT, LeaderEpochCheckpoint, OffsetCheckpoint
from kafkacore.storage.directories import open_directories
from kafkacore.storage.directory_lock import DirectoryLocks
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.format import FormatOptions, format_directories
from kafkacore.storage.names import checkpoint_name, metadata_directory
from kafkacore.storage.quorum_state import QuorumState
from simulated_files import PowerCut, SimulatedFiles

SEEDS = range(20)
NOW_MS = 1_795_261_705_000
DIRECTORY = "/data"
OPTIONS = FormatOptions("MkU3OEVBNTcwNTJENDM2Qk", standalone=True)
CONFIG = BrokerConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/a,/b",
        "metadata.log.dir": "/m",
    }
)
TOPIC_IDS = [Uuid.parse("AIHeYM4KS66zu6YlUTrHdw"), Uuid.parse("4L6g3nShT-eMCtK--X86sw")]

# The functions that write and read each file, and two different contents.
KINDS = {
    "meta.properties": (
        lambda value, files: meta_properties.write(DIRECTORY, value, NOW_MS, files),
        lambda files: meta_properties.read(DIRECTORY, files),
        [meta_properties.MetaProperties("c", 1, topic_id) for topic_id in TOPIC_IDS],
    ),
    "offset checkpoint": (
        lambda value, files: OffsetCheckpoint(DIRECTORY, RECOVERY_POINT, files).write(value),
        lambda files: OffsetCheckpoint(DIRECTORY, RECOVERY_POINT, files).read() or None,
        [{("t", 0): 5}, {("t", 0): 6, ("t", 1): 1}],
    ),
    "leader epochs": (
        lambda value, files: LeaderEpochCheckpoint(DIRECTORY, files).write(value),
        lambda files: LeaderEpochCheckpoint(DIRECTORY, files).read() or None,
        [[(0, 0)], [(0, 0), (2, 7)]],
    ),
    "partition.metadata": (
        lambda value, files: partition_metadata.write(DIRECTORY, value, files),
        lambda files: partition_metadata.read(DIRECTORY, files),
        TOPIC_IDS,
    ),
    "quorum-state": (
        lambda value, files: quorum_state.write(DIRECTORY, value, 1, files),
        lambda files: quorum_state.read(DIRECTORY, files),
        [QuorumState(-1, 3, 1, TOPIC_IDS[0]), QuorumState(-1, 4, 2, TOPIC_IDS[1])],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_file_is_old_or_new_after_a_cut_and_new_once_its_write_returned(kind, seed):
    write, read, (old, new) = KINDS[kind]
    rng = random.Random(seed)
    steps, done = 0, False
    while not done:
        files = SimulatedFiles()
        write(old, files)
        files.steps = files.taken + steps
        try:
            write(new, files)
            done = True
        except PowerCut:
            steps += 1
        files.crash(rng)
        assert read(files) in ([new] if done else [old, new])
    assert steps == 3  # write, rename, and sync of the directory


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_shutdown_mark_stays_removed_after_a_cut(seed):
    rng = random.Random(seed)
    for steps in range(4):
        files = SimulatedFiles()
        clean_shutdown.write(DIRECTORY, 5, files)
        files.steps = files.taken + steps
        try:
            clean_shutdown.remove(DIRECTORY, files)
            removed = True
        except PowerCut:
            removed = False
        files.crash(rng)
        assert clean_shutdown.exists(DIRECTORY, files) in ({False} if removed else {True, False})


@pytest.mark.parametrize("seed", SEEDS)
def test_interrupted_format_continues(seed):
    rng = random.Random(seed)
    steps, done = 0, False
    while not done:
        files = SimulatedFiles(steps)
        try:
            format_directories(CONFIG, OPTIONS, NOW_MS, list, files)
            done = True
        except PowerCut:
            steps += 1
        files.crash(rng)
        for directory in CONFIG.all_log_dirs:
            # The node writes meta.properties last. So a directory with meta.properties also has the other files.
            if meta_properties.read(directory, files) is not None:
                assert bootstrap.read_bootstrap(directory, files)
        if meta_properties.read("/m", files) is not None:
            assert files.exists(f"{metadata_directory('/m')}/{checkpoint_name(0, 0)}")
        whole = all(meta_properties.read(directory, files) for directory in CONFIG.all_log_dirs)
        assert whole or not done
        if not whole:
            with pytest.raises(LogDirectoryError, match=r"has no meta\.properties"):
                open_directories(CONFIG, NOW_MS, files)
            format_directories(CONFIG, OPTIONS._replace(ignore_formatted=True), NOW_MS, list, files)
        opened = open_directories(CONFIG, NOW_MS, files)
        assert list(opened.directory_ids) == ["/a", "/b", "/m"]
    assert steps > 20


def test_locks_use_the_simulated_files():
    files = SimulatedFiles()
    locks = DirectoryLocks(CONFIG.all_log_dirs, files)
    with pytest.raises(LogDirectoryError, match="/a: in use by another node"):
        DirectoryLocks(["/a"], files)
    locks.close()
    DirectoryLocks(["/a"], files).close()
