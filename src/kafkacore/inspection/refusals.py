"""Finds reasons why a node would refuse to start, although the metadata in its log directory is undamaged.

A node needs three things to start: feature levels and records that this release knows, an epoch that is not the last
possible one, and the directory's own id among the voters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkacore.inspection.findings import Findings
from kafkacore.inspection.metadata_log import newest_files, whole_batches
from kafkacore.metadata.records import MetadataError, decode_batch, decode_framed
from kafkacore.protocol.features import METADATA_VERSION, check_finalized
from kafkacore.protocol.messages import FeatureLevelRecord
from kafkacore.raft.control import learn_voters
from kafkacore.raft.file_log import ANY_EPOCH, NO_EPOCH_LEFT
from kafkacore.raft.voters import ReplicaKey, VoterHistory, VoterSet
from kafkacore.storage import bootstrap, meta_properties, names


class MetadataInspection:
    """Inspects the newest snapshot in one log directory, and the log after this snapshot. `me` is the voter to which
    the directory belongs."""

    def __init__(self, directory: str, me: ReplicaKey | None, findings: Findings) -> None:
        self._directory, self._me, self._findings = directory, me, findings
        self._path = names.metadata_directory(directory)
        self._levels: dict[str, int] = {}
        self._voters = VoterHistory(VoterSet())

    def run(self) -> None:
        """Runs the inspection. Raises LogDirectoryError, KafkaError, ProtocolError, CodecError, OSError."""
        for path, start in newest_files(self._path):
            try:
                self._take(path, start)
            except MetadataError as error:
                self._findings.problems.append(f"{path}: {error}")
                return
        self._find_levels()
        self._find_voters()

    def _take(self, path: str, start: int) -> None:
        for batch, data in whole_batches(path, 0):
            # A starting node refuses this epoch in every batch, also below the newest snapshot.
            if batch.partition_leader_epoch == ANY_EPOCH:
                raise MetadataError(NO_EPOCH_LEFT.format(batch.base_offset, ANY_EPOCH))
            if batch.last_offset < start:
                continue
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
        """Checks whether the voter set lists this node with the id of this directory. If it lists another directory id,
        the node can only follow. If the quorum has other voters, one of them may lead, so the finding is a remark.
        Otherwise it is a problem."""
        voters = self._voters.latest
        if self._me is None or voters.get(self._me.replica_id) is None or self._me in voters:
            return
        findings = self._findings.problems if len(voters) == 1 else self._findings.remarks
        findings.append(f"{meta_properties.path_in(self._directory)}: {voters.why_not(self._me)}")
