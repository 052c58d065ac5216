"""Inspects one log directory: its lock, its checkpoints, its logs and the metadata log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from kafkacore._fast.base.errors import KafkaError, ProtocolError
from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.log.index_files import ABORTED_ENTRY_SIZE, OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from kafkacore.inspection.committed import lost_records
from kafkacore.inspection.findings import Findings
from kafkacore.inspection.metadata_log import snapshot_problems
from kafkacore.inspection.refusals import MetadataInspection
from kafkacore.raft.voters import ReplicaKey
from kafkacore.runtime.files import lock_holder
from kafkacore.storage import bootstrap, clean_shutdown, directory_lock, names, partition_metadata, quorum_state
from kafkacore.storage.checkpoints import OFFSETS, LeaderEpochCheckpoint, OffsetCheckpoint
from kafkacore.storage.errors import LogDirectoryError, reason

_ENTRY_BYTES: Final = {
    names.OFFSET_INDEX: OFFSET_ENTRY_SIZE,
    names.TIME_INDEX: TIME_ENTRY_SIZE,
    names.TRANSACTION_INDEX: ABORTED_ENTRY_SIZE,
}
_ON_ITS_WAY: Final = (names.DELETED, names.CLEANED, names.SWAP)
_MEANING: Final = {
    names.Kind.DELETE: "of deleted partitions, which the next start removes",
    names.Kind.FUTURE: "of replicas that are moving here from another log directory",
    names.Kind.STRAY: "of replicas that the metadata assigns elsewhere; a node keeps them, and they take space",
}


class LogDirectoryInspection:
    """Inspects a log directory. After `run`, `live` contains the names of the directories of live partitions.

    `topic_ids` maps each topic to its id, and to the path where the inspection found this id first, in this or an
    earlier directory.
    """

    def __init__(self, directory: str, findings: Findings, topic_ids: dict[str, tuple[str, str]]) -> None:
        self.live: list[str] = []
        self._directory, self._findings, self._topic_ids = directory, findings, topic_ids

    def run(self, *, has_metadata: bool, voter: ReplicaKey | None = None) -> None:
        """Runs the inspection. With `has_metadata`, this directory must contain the metadata log of the voter
        `voter`."""
        try:
            running = self._find_lock()
            found = [entry.name for entry in os.scandir(self._directory) if entry.is_dir()]
        except OSError as error:
            self._findings.problems.append(reason(error))
            return
        for name in OFFSETS:
            self._try(OffsetCheckpoint(self._directory, name).read)
        self._sort_out(sorted(found))
        if has_metadata:
            before = len(self._findings.problems)
            self._find_metadata(found)
            if len(self._findings.problems) == before:
                self._find_refusals(voter)
        if self.live and not running and not clean_shutdown.exists(self._directory):
            self._findings.remarks.append(
                f"{self._directory}: was not shut down cleanly; the next start recovers its logs"
            )

    def _find_lock(self) -> bool:
        path = os.path.join(self._directory, directory_lock.NAME)
        holder = lock_holder(path) if os.path.exists(path) else None
        if holder is not None:
            self._findings.remarks.append(
                f"{self._directory}: in use by {f'process {holder}' if holder else 'a running process'}; "
                "it may change these files during the inspection"
            )
        return holder is not None

    def _try(self, read: Callable[[], object]) -> None:
        try:
            read()
        except (LogDirectoryError, OSError) as error:
            self._findings.problems.append(reason(error))

    def _sort_out(self, found: list[str]) -> None:
        aside: dict[names.Kind, list[str]] = {}
        unknown: list[str] = []
        wrong: list[str] = []
        for name in found:
            if name == names.CLUSTER_METADATA_DIRECTORY or name in names.NO_LOGS:
                continue
            parsed = names.parse_partition_directory(name)
            if parsed is None:
                unknown.append(
                    f"{os.path.join(self._directory, name)} is not the directory of a partition, and no node starts "
                    "while it is there; move it elsewhere"
                )
            elif parsed.kind is names.Kind.LIVE:
                self.live.append(name)
                wrong += self._look_into(name, parsed.topic)
            else:
                aside.setdefault(parsed.kind, []).append(name)
        self._findings.add_problems(unknown, "unknown directories")
        self._findings.add_problems(wrong, f"files of logs in {self._directory}")
        for kind, meaning in _MEANING.items():
            directories = aside.get(kind, [])
            if not directories:
                continue
            what = f"{len(directories)} director{'y' if len(directories) == 1 else 'ies'} {meaning}"
            self._findings.remarks.append(f"{self._directory}: {what}: {', '.join(directories[:3])}")

    def _look_into(self, name: str, topic: str) -> list[str]:
        path = os.path.join(self._directory, name)
        try:
            problems, remarks = examine_log(path)
            topic_id = partition_metadata.read(path)
        except (LogDirectoryError, OSError) as error:
            return [reason(error)]
        if topic_id is not None:
            known, where = self._topic_ids.setdefault(topic, (str(topic_id), path))
            if known != str(topic_id):
                problems.append(f"{path}: topic id {topic_id}, but {where} has {known} for the same topic")
        self._findings.remarks += remarks
        return problems

    def _find_metadata(self, found: list[str]) -> None:
        path = names.metadata_directory(self._directory)
        if names.CLUSTER_METADATA_DIRECTORY not in found:
            if self.live or clean_shutdown.exists(self._directory):
                self._findings.problems.append(
                    f"{path}: the metadata log is missing, though the node has run: restore it, or format a new "
                    "directory and let this node follow the other controllers"
                )
            return
        self._try(lambda: quorum_state.read(path))
        at_first = os.path.join(self._directory, bootstrap.NAME)
        if os.path.exists(at_first):
            self._findings.problems += _snapshot_problems(at_first)
        try:
            problems, remarks = examine_log(path)
            self._findings.remarks += remarks
            snapshots = sorted(filter(names.parse_checkpoint_name, os.listdir(path)))
            problems += _snapshot_problems(os.path.join(path, snapshots[-1])) if snapshots else []
            problems += lost_records(path)
        except (LogDirectoryError, OSError) as error:
            problems = [reason(error)]
        self._findings.add_problems(problems, "files of the metadata log")

    def _find_refusals(self, voter: ReplicaKey | None) -> None:
        try:
            MetadataInspection(self._directory, voter, self._findings).run()
        except (LogDirectoryError, OSError) as error:
            self._findings.problems.append(reason(error))
        except (KafkaError, ProtocolError, CodecError) as error:
            self._findings.problems.append(f"{self._directory}: {error}")


def examine_log(path: str) -> tuple[list[str], list[str]]:
    """Returns the problems and remarks that follow from the names and sizes of a log's files. Raises LogDirectoryError,
    OSError."""
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(path) if entry.is_file()}
    problems: list[str] = []
    bases: dict[str, set[int]] = {}
    for name, size in sorted(sizes.items()):
        parsed = names.parse_file_name(name)
        if parsed is None:
            continue
        bases.setdefault(parsed[1], set()).add(parsed[0])
        entry_bytes = _ENTRY_BYTES.get(parsed[1])
        if entry_bytes is not None and size % entry_bytes:
            problems.append(
                f"{os.path.join(path, name)}: has {size} bytes, which is not a multiple of an entry's {entry_bytes}"
            )
    segments = bases.get(names.LOG, set())
    remarks = []
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        missing = sorted(segments - bases.get(suffix, set()))
        if missing:
            told = names.file_name(missing[0], suffix)
            remarks.append(f"{path}: {_counted(missing, told)} missing; the next start makes it from the segment")
        orphans = sorted(bases.get(suffix, set()) - segments)
        if orphans:
            problems.append(f"{path}: {_counted(orphans, names.file_name(orphans[0], suffix))} without a segment")
    leftovers = [name for name in sizes if name.endswith(_ON_ITS_WAY)]
    if leftovers:
        remarks.append(
            f"{path}: {_counted(leftovers, min(leftovers))} left half done; the next start finishes or removes it"
        )
    LeaderEpochCheckpoint(path).read()
    return problems, remarks


def _counted(found: list[int] | list[str], first: str) -> str:
    return f"{first} is" if len(found) == 1 else f"{first} and {len(found) - 1} more are"


def _snapshot_problems(path: str) -> list[str]:
    try:
        return [f"{path}: {'' if at is None else f'byte {at}: '}{told}" for told, at in snapshot_problems(path)]
    except OSError as error:
        return [reason(error)]
    except (KafkaError, ProtocolError, CodecError) as error:
        return [f"{path}: {error}"]
