"""The roles of a replica. Each role has the state that only this role needs. Times are monotonic milliseconds."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafkacore.raft.answer_checks import SnapshotCheck
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import ReplicaKey, Voter

NOBODY: Final = -1
NEVER: Final = -1


class Destination(NamedTuple):
    """The address of a node. `node_id` is below -1 for a bootstrap server, whose id is not known."""

    node_id: int
    host: str
    port: int


class Unattached:
    """The replica is in an epoch, but does not follow a leader, even if it knows the leader of the epoch."""

    __slots__ = ("election_deadline_ms",)

    def __init__(self, election_deadline_ms: int) -> None:
        self.election_deadline_ms = election_deadline_ms


class Election:
    """The votes of one election or pre-vote, granted and refused. A voter that has not answered yet is in neither set.
    `silent` holds the voters that did not answer the last request.
    """

    __slots__ = ("asked", "deadline_ms", "granted", "rejected", "silent")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.granted: set[ReplicaKey] = set()
        self.rejected: set[ReplicaKey] = set()
        self.asked: set[int] = set()
        self.silent: set[int] = set()

    def ask_again(self, replica_id: int) -> None:
        """Drops the last answer of a voter, so that this replica sends it another request."""
        self.asked.discard(replica_id)
        self.rejected = {key for key in self.rejected if key.replica_id != replica_id}


class Prospective(Election):
    """The replica sends pre-votes, which ask the voters whether it could win, before it starts a new epoch
    (KIP-996).
    """

    __slots__ = ()


class Candidate(Election):
    """The replica has started a new epoch, has voted for itself, and asks the other voters for their votes."""

    __slots__ = ()


class Follower:
    """The replica follows a leader. `has_fetched` says whether it has fetched from this leader in this epoch.
    `download` is the snapshot that it is downloading. The bytes below `download_position` have been downloaded, and
    checked with `download_check`."""

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
        self.change_due_ms = NEVER  # the earliest time of this replica's next request to change its own membership
        self.has_fetched = False
        self.has_introduced_itself = False  # whether this static voter has sent its endpoints to this leader
        self.is_unanswered = False  # whether the leader did not answer the last request
        self.download: OffsetAndEpoch | None = None
        self.download_position = 0
        self.download_check = SnapshotCheck()

    def begin_download(self, snapshot_id: OffsetAndEpoch) -> None:
        self.download = snapshot_id
        self.download_position = 0
        self.download_check = SnapshotCheck()


class Progress:
    """How far a replica has fetched. Before the replica's first Fetch in this epoch, `end_offset` is NEVER. If the
    replica does not fetch, the leader sends the next BeginQuorumEpoch at `announced_until_ms`.
    """

    __slots__ = (
        "announced_until_ms", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms", "leader_end_at_last_fetch",
    )  # fmt: skip

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = self.last_fetch_ms = self.last_caught_up_ms = NEVER
        self.leader_end_at_last_fetch = self.announced_until_ms = NEVER


class VoterChange:
    """A change of the voter set whose client waits for a response. `voter` is the new voter, if any. `offset` is the
    offset of the record with the new set, or None before that record is appended.
    """

    __slots__ = ("deadline_ms", "offset", "request", "token", "voter")

    def __init__(self, token: Any, request: Any, deadline_ms: int, voter: Voter | None) -> None:
        self.token, self.request = token, request
        self.deadline_ms = deadline_ms
        self.voter = voter
        self.offset: int | None = None


class Leader:
    """The replica leads. `fetched` holds the voters that have fetched since the last check of the quorum. `introduced`
    holds the directory ids, endpoints and versions that static voters have sent; before kraft.version 1 the log has no
    record of them."""

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
    """This replica led the epoch and has resigned. It sends EndQuorumEpoch until a new epoch starts."""

    __slots__ = ("election_deadline_ms", "unacknowledged")

    def __init__(self, election_deadline_ms: int, unacknowledged: set[int]) -> None:
        self.election_deadline_ms = election_deadline_ms
        self.unacknowledged = unacknowledged


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
