"""Why a start would not take the metadata of a log directory, whole as it is: it asks for feature levels and records
that it knows, an epoch that leaves one to elect in, and its own directory among the voters'."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from kafkacore._fast.record.batch import Batches, CorruptBatchError
from kafkacore._fast.record.batch_scan import BatchScan
from kafkacore.inspection.findings import Findings
from kafkacore.metadata.records import MetadataError, decode_batch, decode_framed
from kafkacore.protocol.features import METADATA_VERSION, check_finalized
from kafkacore.protocol.messages import FeatureLevelRecord
from kafkacore.raft.control import learn_voters
from kafkacore.raft.file_log import ANY_EPOCH, NO_EPOCH_LEFT
from kafkacore.raft.voters import ReplicaKey, VoterHistory, VoterSet
from kafkacore.storage import bootstrap, meta_properties, names

_WHOLE: Final = 1 << 31  # no batch is larger


class MetadataInspection:
    """Of the newest snapshot and of what follows it in the log of one log directory, that of `me`: a voter, or None."""

    def __init__(self, directory: str, me: ReplicaKey | None, findings: Findings) -> None:
        self._directory, self._me, self._findings = directory, me, findings
        self._path = names.metadata_directory(directory)
        self._levels: dict[str, int] = {}
        self._voters = VoterHistory(VoterSet())

    def run(self) -> None:
        """Raises LogDirectoryError, KafkaError, ProtocolError, CodecError, OSError."""
        for name, start in _files(self._path):
            path = os.path.join(self._path, name)
            try:
                self._take(path, start)
            except MetadataError as error:
                self._findings.problems.append(f"{path}: {error}")
                return
        self._find_levels()
        self._find_voters()

    def _take(self, path: str, start: int) -> None:
        for data in _whole_batches(path, start):
            batch = next(Batches(data))
            if batch.partition_leader_epoch == ANY_EPOCH:
                raise MetadataError(NO_EPOCH_LEFT.format(batch.base_offset, ANY_EPOCH))
            if batch.is_control:
                learn_voters(self._voters, data)
            else:
                self._learn(decode_batch(batch))

    def _learn(self, records: Iterable[object]) -> None:
        self._levels |= {each.name: each.feature_level for each in records if isinstance(each, FeatureLevelRecord)}

    def _find_levels(self) -> None:
        path = self._path
        if METADATA_VERSION not in self._levels:
            path = os.path.join(self._directory, bootstrap.NAME)
            self._learn([decode_framed(each)[0] for each in bootstrap.read_bootstrap(self._directory) or []])
        if self._me is not None and METADATA_VERSION not in self._levels:
            self._findings.problems.append(f"{path}: {bootstrap.NO_LEVELS}")
        try:
            check_finalized(self._levels)
        except ValueError as error:
            self._findings.problems.append(f"{path}: {error}")

    def _find_voters(self) -> None:
        """Another controller of the quorum may lead while this one follows; the only one has nobody to follow."""
        voters = self._voters.latest
        if self._me is None or voters.get(self._me.replica_id) is None or self._me in voters:
            return
        told = self._findings.problems if len(voters) == 1 else self._findings.remarks
        told.append(f"{meta_properties.path_in(self._directory)}: {voters.why_not(self._me)}")


def _files(path: str) -> Iterator[tuple[str, int]]:
    """The newest snapshot and every segment, and the offset from which on each tells something new."""
    found = sorted(os.listdir(path)) if os.path.isdir(path) else []
    snapshots = [parsed for parsed in map(names.parse_checkpoint_name, found) if parsed is not None]
    end = 0
    if snapshots:
        end, epoch = max(snapshots)
        yield names.checkpoint_name(end, epoch), 0
    for name in found:
        if name.endswith(names.LOG):
            yield name, end


def _whole_batches(path: str, start: int) -> Iterator[bytes]:
    """Up to where a segment is torn, and cut by the next start; of a snapshot that is said elsewhere."""
    with BatchScan(path) as scan:
        while True:
            try:
                offsets = scan.batch_at(scan.position, _WHOLE)
            except CorruptBatchError:
                return
            if offsets is None or scan.fault:
                return
            if offsets[1] >= start:
                yield scan.data
