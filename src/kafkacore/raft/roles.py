"""The roles of a replica, each with the state that only this role needs. Times are monotonic milliseconds."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafkacore.raft.answer_checks import SnapshotCheck
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import ReplicaKey, Voter

NOBODY: Final = -1
NEVER: Final = -1


class Destination(NamedTuple):
    """`node_id` is below -1 for a bootstrap server, because its id is not known."""

    node_id: int
    host: str
    port: int


class Unattached:
    """Knows an epoch and maybe its leader, and does not follow."""

    __slots__ = ("election_deadline_ms",)

    def __init__(self, election_deadline_ms: int) -> None:
        self.election_deadline_ms = election_deadline_ms


class Election:
    """The votes of one round: granted and refused. A voter that has not answered yet is in neither set. `silent` has
    those that gave no answer when they were last asked."""

    __slots__ = ("asked", "deadline_ms", "granted", "rejected", "silent")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.granted: set[ReplicaKey] = set()
        self.rejected: set[ReplicaKey] = set()
        self.asked: set[int] = set()
        self.silent: set[int] = set()

    def ask_again(self, replica_id: int) -> None:
        """Its last answer no longer counts."""
        self.asked.discard(replica_id)
        self.rejected = {key for key in self.rejected if key.replica_id != replica_id}


class Prospective(Election):
    """Asks the voters whether it could win, before it begins a new epoch (KIP-996)."""

    __slots__ = ()


class Candidate(Election):
    """Asks for votes in an epoch of its own, for which it has voted."""

    __slots__ = ()


class Follower:
    """`has_fetched`: this replica has fetched from this leader in this epoch. `download` is the snapshot that it
    downloads. It has the bytes below `download_position`, and `download_check` has checked them."""

    __slots__ = (
        "change_due_ms",
        "download",
        "download_check",
        "download_position",
        "fetch_deadline_ms",
        "has_fetched",
        "has_introduced_itself",
        "is_unanswered",
    )  # fmt: skip

    def __init__(self, fetch_deadline_ms: int) -> None:
        self.fetch_deadline_ms = fetch_deadline_ms
        self.change_due_ms = NEVER  # when this replica may ask again for a change of its own membership
        self.has_fetched = False
        self.has_introduced_itself = False  # whether this static voter has introduced itself to this leader
        self.is_unanswered = False  # the leader did not answer the last request
        self.download: OffsetAndEpoch | None = None
        self.download_position = 0
        self.download_check = SnapshotCheck()

    def begin_download(self, snapshot_id: OffsetAndEpoch) -> None:
        self.download = snapshot_id
        self.download_position = 0
        self.download_check = SnapshotCheck()


class Progress:
    """How far a replica has fetched. `end_offset` is NEVER before its first Fetch in this epoch. The next
    BeginQuorumEpoch to it is due at `announced_until_ms`."""

    __slots__ = (
        "announced_until_ms", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms", "leader_end_at_last_fetch",
    )  # fmt: skip

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = self.last_fetch_ms = self.last_caught_up_ms = NEVER
        self.leader_end_at_last_fetch = self.announced_until_ms = NEVER


class VoterChange:
    """A change of the voter set, for which a client waits. `voter` is the new voter, if any. `offset` is that of the
    record with the new set; None before the record is appended."""

    __slots__ = ("deadline_ms", "offset", "request", "token", "voter")

    def __init__(self, token: Any, request: Any, deadline_ms: int, voter: Voter | None) -> None:
        self.token, self.request = token, request
        self.deadline_ms = deadline_ms
        self.voter = voter
        self.offset: int | None = None


class Leader:
    """`fetched` has the voters that have fetched since the last check of the quorum. `introduced` has the directory
    ids, endpoints and versions that static voters have sent, because before kraft.version 1 no record has them."""

    __slots__ = (
        "change", "check_quorum_deadline_ms", "epoch_start_offset", "fetched", "granting", "introduced", "observers",
        "voters",
    )  # fmt: skip

    def __init__(
        self,
        epoch_start_offset: int,
        voters: dict[int, Progress],
        granting: frozenset[ReplicaKey],
        check_quorum_deadline_ms: int,
    ) -> None:
        self.epoch_start_offset = epoch_start_offset
        self.voters = voters
        self.granting = granting
        self.check_quorum_deadline_ms = check_quorum_deadline_ms
        self.observers: dict[ReplicaKey, Progress] = {}
        self.fetched: set[int] = set()
        self.change: VoterChange | None = None
        self.introduced: dict[int, Voter] = {}


class Resigned:
    """This replica led the epoch and has resigned. It sends EndQuorumEpoch until a new epoch begins."""

    __slots__ = ("election_deadline_ms", "unacknowledged")

    def __init__(self, election_deadline_ms: int, unacknowledged: set[int]) -> None:
        self.election_deadline_ms = election_deadline_ms
        self.unacknowledged = unacknowledged


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
