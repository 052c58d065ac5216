"""A node whose disk loses unsynced writes in a power failure. The test records every file operation of a node, which it
kills, stops and starts again meanwhile. Then, for each moment of the recording, it starts a node with the files that a
power cut at that moment could leave.

KAFKACORE_CRASH_POINTS is the number of moments that the test tries, or `all`. KAFKACORE_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import disk_journal
import forgetful_workload as workload
from brokers import Node as NodeProcess
from dialogue import Dialogue
from disk_journal import Cut, Disk, Operation
from forgetful_workload import Known, Workload
from kafkacore.config.properties import parse
from kafkacore.server.node import Node
from kafkacore.storage import quorum_state
from kafkacore.storage.names import metadata_directory
from kafkacore.tools import dev
from processes import wait_until
from seeds import SEED

POINTS = os.environ.get("KAFKACORE_CRASH_POINTS", "120")
METADATA = "__cluster_metadata-0"
FAILED_SYNCS = 4
# The log lines of a node that could not sync one of two files: a metadata snapshot, or the mark of committed records
# (docs/recovery.md). The node continues with the previous file, and writes a new one later.
SPARE_FILES = ("no snapshot could be made", "the mark of committed records was not written")
# The test takes this many ids from a block of 1000. So the node has already requested the next block when the test
# ends.
PRODUCER_IDS = 950


class Recording(NamedTuple):
    operations: list[Operation]
    facts: Workload
    left: dict[str, bytes]  # by path: the files on disk when the last process ended


def use_at_first(node: Dialogue, did: Workload) -> None:
    did.create(node, "synced", flush_messages="1")
    did.create(node, "lazy")
    did.create(node, "doomed", flush_messages="1")
    did.create(node, "short", flush_messages="1", retention_bytes="4000")
    did.produce(node, "synced", 12, promised=True, producer_id=did.producer_ids(node, 1))
    did.produce(node, "lazy", 12, promised=False)
    did.produce(node, "doomed", 4, promised=True)
    did.producer_ids(node, PRODUCER_IDS)
    did.delete(node, "doomed")
    did.produce(node, "synced", 6, promised=True)


def use_again(node: Dialogue, did: Workload) -> None:
    did.delete_records(node, "synced", 15)
    did.produce(node, "synced", 8, promised=True, producer_id=did.producer_ids(node, 1))
    did.create(node, "late", flush_messages="1")
    did.produce(node, "late", 9, promised=True)
    did.produce(node, "lazy", 8, promised=False)
    did.produce(node, "short", 15, promised=True)


def use_at_last(node: Dialogue, did: Workload) -> None:
    did.produce(node, "lazy", 3, promised=False)
    did.produce(node, "late", 5, promised=True, producer_id=did.producer_ids(node, 1))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    directory = tmp_path_factory.mktemp("recorded")
    root, journal = directory / "disk", directory / "journal"
    root.mkdir()
    watched = disk_journal.environment(disk_journal.build(directory), journal, root)
    did = Workload(lambda: journal.stat().st_size)
    data = root / "node"
    for use, end in ((use_at_first, "kill"), (use_again, "stop"), (use_at_last, "kill")):
        process = NodeProcess(data, overrides=dict(each.split("=") for each in workload.OVERRIDES), environment=watched)
        did.note(properties=properties(data), quorum_epoch=quorum_epoch(data))
        with Dialogue(process.bootstrap) as node:
            use(node, did)
            checkpointed_again(data, node, did)
        if end == "kill":
            disk_journal.kill(process.child.process, journal)
            process.kill()
        else:
            assert process.stop() == 0, process.child.tail()
            did.stopped_in_order()
        process.log.unlink()
    left = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return Recording(disk_journal.read(journal), did, left)


def properties(data: Path) -> dict[str, str]:
    return parse((data / "meta.properties").read_bytes(), "meta.properties")


def quorum_epoch(data: Path) -> int:
    state = quorum_state.read(metadata_directory(str(data)))
    return -1 if state is None else state.leader_epoch


def checkpointed_again(data: Path, node: Dialogue, did: Workload) -> None:
    """Waits until a checkpoint contains the end of the workload. Sends one more record, because the node does not write
    an unchanged checkpoint."""
    path = data / "recovery-point-offset-checkpoint"
    before = path.stat().st_mtime_ns if path.exists() else 0
    did.produce(node, "synced", 1, promised=True)
    wait_until(lambda: path.exists() and path.stat().st_mtime_ns != before, what="another checkpoint")


def moments(recording: Recording) -> list[int]:
    """Returns the moments of the power cuts. A moment is a number of completed operations. The result has all moments,
    or a sample of them."""
    everything = range(len(recording.operations) + 1)
    if POINTS == "all":
        return list(everything)
    return sorted(random.Random(SEED).sample(everything, min(int(POINTS), len(everything))))


@pytest.fixture
def memory() -> Iterator[Path]:
    """Returns a directory on tmpfs. The test only simulates power cuts, and syncs cost nothing on tmpfs."""
    fast = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="kafkacore-", dir=fast if os.path.isdir(fast) else None) as made:
        yield Path(made)


def states(recording: Recording, into: Path) -> Iterator[tuple[int, Path, Known]]:
    """Yields each moment, with the files that a power cut leaves and the client's knowledge at that time."""
    disk, done = Disk(), 0
    for moment in moments(recording):
        for operation in recording.operations[done:moment]:
            disk.apply(operation)
        done = moment
        left = into / "left"
        Cut(SEED + moment).leave(disk, left)
        end = recording.operations[moment - 1].end if moment else 0
        yield moment, left / "node", recording.facts.known_at(end)
        shutil.rmtree(left)


def test_journal_has_everything_that_reached_the_files(recording: Recording) -> None:
    disk = Disk()
    for operation in recording.operations:
        disk.apply(operation)
    assert disk.files() == recording.left


def segments(data: Path) -> dict[Path, int]:
    """Returns the sizes of segments by path. Leaves out the metadata log, because a node may delete its segments at any
    time."""
    return {path: path.stat().st_size for path in data.glob("*/*.log") if path.parent.name != METADATA}


def check_cuts_were_told(before: dict[Path, int], data: Path, caplog: pytest.LogCaptureFixture) -> None:
    after = segments(data)
    for path, size in before.items():
        if path.parent.exists() and after.get(path, 0) < size:
            assert any(str(path.parent) in line for line in caplog.messages), f"{path} was cut without a log line"


def check_state(data: Path, known: Known, caplog: pytest.LogCaptureFixture) -> None:
    config = dev.configuration(str(data), 0, [*workload.OVERRIDES, "server.max.startup.time.ms=10000"])
    if known.properties is not None:
        assert properties(data) == known.properties
    assert quorum_epoch(data) >= known.quorum_epoch
    dev.prepare(config)
    before = segments(data)
    caplog.clear()
    with Node(config) as started:
        assert started.bootstrap is not None
        check_cuts_were_told(before, data, caplog)
        with Dialogue(started.bootstrap) as node:
            workload.check(node, known)


@pytest.mark.timeout(300 if POINTS != "all" else 3600)
def test_node_keeps_its_promises_after_a_power_cut_at_any_moment(
    recording: Recording, memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[str] = []
    tried = 0
    for moment, data, known in states(recording, memory):
        tried += 1
        try:
            check_state(data, known, caplog)
        except Exception as error:  # noqa: BLE001 - the test tries every moment and reports all failures
            at = recording.operations[moment - 1]
            failures.append(f"moment {moment} (kind {at.kind} {at.path}): {type(error).__name__}: {error}")
    total = len(recording.operations)
    print(f"\n{tried} of {total + 1} moments tried, KAFKACORE_SEED={SEED}, {len(recording.facts.facts)} answers")
    assert not failures, f"KAFKACORE_SEED={SEED}, {len(failures)} of {tried} moments:\n" + "\n".join(failures[:30])


def has_given_up(process: NodeProcess) -> bool:
    """Returns whether the node has ended with an error, or has given up a file without which it can continue (see
    SPARE_FILES)."""
    status = process.child.process.poll()
    assert status != 0, "the node exited with 0 in spite of the failed sync"
    log = process.log.read_text(errors="replace")
    return status is not None or any(given_up in log for given_up in SPARE_FILES)


def failing_syncs(recording: Recording) -> list[int]:
    """Chooses the syncs of the first process that shall fail. Returns their numbers: all syncs, or a sample of them."""
    first = recording.operations[0].process
    count = sum(one.kind == disk_journal.SYNC_BEGIN and one.process == first for one in recording.operations)
    return list(range(count)) if POINTS == "all" else sorted(random.Random(SEED).sample(range(count), FAILED_SYNCS))


@pytest.mark.timeout(300 if POINTS != "all" else 3600)
def test_node_never_repeats_a_failed_sync(
    recording: Recording, tmp_path: Path, memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a failed sync, the kernel marks the pages clean. So a second sync would report success, and the data would
    be lost."""
    library, failed = disk_journal.build(tmp_path), 0
    for number in failing_syncs(recording):
        root, journal = memory / f"disk-{number}", tmp_path / f"journal-{number}"
        root.mkdir()
        did = Workload(lambda journal=journal: journal.stat().st_size)  # type: ignore[misc]
        process = None
        # After a failed sync, the node may fail to start, or may end during the workload.
        with contextlib.suppress(RuntimeError, OSError, AssertionError):
            process = NodeProcess(
                root / "node",
                overrides=dict(each.split("=") for each in workload.OVERRIDES),
                environment=disk_journal.environment(library, journal, root, number),
            )
            with Dialogue(process.bootstrap) as node:
                use_at_first(node, did)
        operations = disk_journal.read(journal)
        happened = any(one.kind == disk_journal.SYNC_FAILED for one in operations)
        if process is not None:
            if happened:
                wait_until(lambda process=process: has_given_up(process), 20, f"the end after sync {number} failed")  # type: ignore[misc]
            process.kill()
        failed += happened
        disk = Disk()
        for operation in operations:
            disk.apply(operation)
        Cut(SEED + number).leave(disk, root / "left")
        check_state(root / "left" / "node", did.known_at(operations[-1].end), caplog)
    print(f"\n{failed} failed syncs, KAFKACORE_SEED={SEED}")
