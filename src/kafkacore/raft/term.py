"""A replica's epoch, its vote and its leader, and whether they are on disk in the file quorum-state."""

from __future__ import annotations

from typing import Any

from kafkacore.raft.roles import NOBODY
from kafkacore.raft.voters import ReplicaKey, VoterHistory
from kafkacore.storage.quorum_state import QuorumState


class Term:
    """The epoch, the vote and the leader. This replica sends nothing in an epoch before the epoch and the vote are on
    disk, because a replica that forgot its vote could vote twice. `required` is the version of this state that must be
    on disk before this replica may send a message.
    """

    def __init__(self, state: QuorumState | None, last_epoch: int) -> None:
        """Restores the epoch and the vote. `state` is the last persisted state. `last_epoch` is the epoch of the last
        record in the log."""
        self.epoch = max(state.leader_epoch if state else 0, last_epoch)
        self.voted: ReplicaKey | None = None
        if state and state.leader_epoch == self.epoch and state.voted_id != NOBODY:
            self.voted = ReplicaKey(state.voted_id, state.voted_directory_id)
        self.leader_id = state.leader_id if state and state.leader_epoch == self.epoch else NOBODY
        self.leader_endpoint: tuple[str, int] | None = None
        self.required = 0
        self._made = self._on_disk = 0
        self._written: QuorumState | None = state
        self._stated: tuple[Any, ...] | None = None  # the values in the state that `take_state` returned last

    def enter(self, epoch: int, voted: ReplicaKey | None = None, leader_id: int = NOBODY) -> None:
        """Enters an epoch, or records a vote in the current epoch."""
        self.epoch, self.voted, self.leader_id, self.leader_endpoint = epoch, voted, leader_id, None
        self.required = self._made + 1

    def persisted(self, version: int) -> None:
        self._on_disk = max(self._on_disk, version)

    def has(self, version: int) -> bool:
        """Returns whether this version of the state, or a later one, is on disk."""
        return self._on_disk >= version

    @property
    def is_persisted(self) -> bool:
        return self.has(self.required)

    def take_state(self, voters: VoterHistory) -> tuple[int, QuorumState] | None:
        """Returns the state to write, with a version to pass to `persisted`, or None if the state on disk is up to
        date."""
        known = voters.kraft_version
        stated = (self.leader_id, self.epoch, self.voted, known, voters.latest)
        if stated == self._stated and self.required <= self._made:
            return None
        self._stated = stated
        state = QuorumState(
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            voted_id=self.voted.replica_id if self.voted else NOBODY,
            voted_directory_id=self.voted.directory_id if self.voted and known else QuorumState().voted_directory_id,
            voters=tuple([] if known else [voter.key.replica_id for voter in voters.latest.voters()]),
        )
        if state == self._written and self.required <= self._made:
            return None
        self._written = state
        self._made += 1
        return self._made, state
