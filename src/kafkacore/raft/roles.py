"""The roles a replica plays, each with what it must remember only while it plays it. Times are monotonic
milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import ReplicaKey

NOBODY: Final = -1
NEVER: Final = -1


class Destination(NamedTuple):
    """`node_id` is below -1 for a bootstrap server, whose id is not known."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class Unattached:
    """Knows an epoch, at most who leads it, and does not follow."""

    election_deadline_ms: int


@dataclass(slots=True)
class Election:
    """The votes of one round; a voter that has not answered yet is in neither set."""

    deadline_ms: int
    granted: set[ReplicaKey] = field(default_factory=set)
    rejected: set[ReplicaKey] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Prospective(Election):
    """Asks whether it could win before it disturbs anybody with a new epoch (KIP-996)."""


@dataclass(slots=True)
class Candidate(Election):
    """Asks for votes in an epoch of its own, for which it has voted."""


@dataclass(slots=True)
class Follower:
    fetch_deadline_ms: int
    has_fetched: bool = False  # from this leader in this epoch
    download: OffsetAndEpoch | None = None
    download_position: int = 0


@dataclass(slots=True)
class Progress:
    """How far a replica is; `end_offset` NEVER before its first fetch in this epoch."""

    key: ReplicaKey
    end_offset: int = NEVER
    last_fetch_ms: int = NEVER
    last_caught_up_ms: int = NEVER
    leader_end_at_last_fetch: int = NEVER
    told_until_ms: int = NEVER  # when the next BeginQuorumEpoch is due


@dataclass(slots=True)
class Leader:
    epoch_start_offset: int
    voters: dict[int, Progress]
    granting: frozenset[ReplicaKey]
    check_quorum_deadline_ms: int
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)  # voters heard of since the quorum was last checked


@dataclass(slots=True)
class Resigned:
    """Led this epoch and does not any more; tells the others until a new epoch begins."""

    election_deadline_ms: int
    unacknowledged: set[int]


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
