"""Damages every kind of file of a node, at every kind of position. The node either starts and serves its records, or
names the damaged file.

KAFKACORE_FUZZ_SECONDS (5) limits the time. KAFKACORE_SEED repeats a run, and a failure prints the seed.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import forgetful_workload as workload
from dialogue import Dialogue
from file_damage import Damage, damages
from forgetful_workload import Workload
from kafkacore.inspection.directories import describe_directories
from kafkacore.server.node import Node
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError
from kafkacore.tools import dev
from seeds import SEED

SECONDS = float(os.environ.get("KAFKACORE_FUZZ_SECONDS", "5"))
OVERRIDES = [*workload.OVERRIDES, "server.max.startup.time.ms=3000"]
TOPICS = {"one": 6, "two": 3}  # by topic: the number of batches
METADATA = "__cluster_metadata-0"


def started(directory: Path) -> Node:
    config = dev.configuration(str(directory), 0, OVERRIDES)
    dev.prepare(config)
    node = Node(config)
    node.start()
    return node


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("used")
    for _ in range(3):
        node = started(directory)
        assert node.bootstrap is not None
        did = Workload(lambda: 0)
        with Dialogue(node.bootstrap) as asked:
            if not asked.topics():
                for topic, batches in TOPICS.items():
                    did.create(asked, topic)
                    did.produce(asked, topic, batches, promised=False, producer_id=did.producer_ids(asked, 1))
            did.producer_ids(asked, 3)
        node.stop()
    return directory


@pytest.fixture
def place() -> Iterator[Path]:
    fast = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="kafkacore-", dir=fast if os.path.isdir(fast) else None) as made:
        yield Path(made)


def check(used: Path, place: Path, name: str, damage: Damage, caplog: pytest.LogCaptureFixture) -> str | None:
    """Returns an error text if the node handled the damage wrongly, else None."""
    directory = place / "node"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(used, directory)
    (directory / name).write_bytes(damage.data)
    caplog.clear()
    file = name.rsplit("/", 1)[-1]
    try:
        node = started(directory)
    except (LogDirectoryError, MalformedFileError) as error:
        if file not in str(error):
            return f"refused, and not by the file's name: {error}"
        sound = describe_directories(dev.configuration(str(directory), 0, OVERRIDES), [].append)
        return f"refused, and storage info says that all is well: {error}" if sound else None
    try:
        assert node.bootstrap is not None
        with Dialogue(node.bootstrap) as asked:
            lost = set(TOPICS) - set(asked.topics())
            if lost:
                # If the file was truncated, the metadata log keeps the records before the cut, and the node logs a line
                # about it.
                told = any(METADATA in line for line in caplog.messages)
                return None if name.startswith(METADATA) and told else f"{lost} are gone, and nobody said so"
            for topic, batches in TOPICS.items():
                if workload.check_records(asked, topic, workload.Known()) != batches * workload.RECORDS_A_BATCH:
                    return None if is_put_aside(directory, name, caplog) else f"{topic} has lost records"
    finally:
        node.stop()
    return None


def is_put_aside(directory: Path, name: str, caplog: pytest.LogCaptureFixture) -> bool:
    """Returns whether the node has renamed the directory. partition.metadata has no checksum. If its topic id is
    damaged, the log seems to belong to a deleted topic, so the node renames the directory."""
    partition, _, file = name.partition("/")
    reasons = "its topic id is", "it has no partition.metadata"
    told = any(f"/{partition}: {reason}" in line for line in caplog.messages for reason in reasons)
    kept = any(path.stat().st_size for path in directory.glob(f"{partition}.*-stray/*.log"))
    return file == "partition.metadata" and told and kept


@pytest.mark.timeout(60 + 3 * SECONDS)
def test_node_starts_with_its_records_or_names_the_damaged_file(
    used: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(SEED)
    files = [path for path in sorted(used.rglob("*")) if path.is_file() and path.stat().st_size]
    names = [str(path.relative_to(used)) for path in files if path.parent == used or METADATA in str(path)]
    names += ["one-0/partition.metadata", "one-0/leader-epoch-checkpoint"]
    work = [(name, damage) for name in names for damage in damages(name, (used / name).read_bytes(), rng)]
    rng.shuffle(work)
    until, failures, tried = time.monotonic() + SECONDS, [], 0
    for name, damage in work:
        if time.monotonic() > until:
            break
        tried += 1
        try:
            wrong = check(used, place, name, damage, caplog)
        except Exception as error:  # noqa: BLE001 - the test tries every damage and reports all failures
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            failures.append(f"{name}: {damage.place.what}, {damage.how}: {wrong}")
    print(f"\n{tried} of {len(work)} damages tried in {len(names)} files, KAFKACORE_SEED={SEED}")
    assert not failures, f"KAFKACORE_SEED={SEED}, {len(failures)} of {tried}:\n" + "\n".join(sorted(failures)[:40])
