"""The voters: their directory ids and endpoints, and the voter set at each offset of the log (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkacore.protocol.messages import VotersRecord
from kafkacore.protocol.uuid import ZERO, Uuid

Endpoints = tuple[tuple[str, str, int], ...]  # (listener name, host, port) of each listener

BEFORE_LOG: Final = -1
# A voter chooses its endpoints. So the leader writes a voter set only if its record stays far below the limit of a
# batch.
MAX_VOTERS_BYTES: Final = 1 << 20


class ReplicaKey(NamedTuple):
    """A replica of the quorum. `directory_id` is ZERO for static voters (kraft.version 0), whose directory ids are not
    known."""

    replica_id: int
    directory_id: Uuid = ZERO

    def matches(self, other: ReplicaKey) -> bool:
        """Returns whether both keys can denote the same replica. An unknown directory id matches every directory id."""
        if self.replica_id != other.replica_id:
            return False
        return ZERO in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: Endpoints
    kraft_versions: tuple[int, int] = (0, 1)

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Returns the host and port of a listener, or of the first listener if none has that name."""
        for name, host, port in self.endpoints:
            if name == listener:
                return host, port
        return self.endpoints[0][1:] if self.endpoints else None


class VoterSet:
    """An immutable set of voters."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters: Mapping[int, Voter] = {voter.key.replica_id: voter for voter in voters}

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.replica_id)
        return voter is not None and voter.key.matches(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(frozenset(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({sorted(self._voters.values())})"

    def get(self, replica_id: int) -> Voter | None:
        return self._voters.get(replica_id)

    def voters(self) -> list[Voter]:
        """Returns the voters, sorted by id."""
        return [self._voters[replica_id] for replica_id in sorted(self._voters)]

    def why_not(self, key: ReplicaKey) -> str:
        """Returns the reason why a controller that could be a voter is not one, and how to make it a voter."""
        voter = self._voters.get(key.replica_id)
        if voter is not None:
            return (
                f"controller {key.replica_id} has directory id {key.directory_id}, but the voter with its node id has "
                f"{voter.key.directory_id}, so it only follows. Start it on that directory, or replace the voter"
            )
        others = ", ".join(map(str, sorted(self._voters))) or "none"
        return f"controller {key.replica_id} is not among the voters ({others}): it only follows until it is added"

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self._voters) == 1 and key in self

    def with_voter(self, voter: Voter) -> VoterSet:
        return VoterSet(
            [*[each for each in self._voters.values() if each.key.replica_id != voter.key.replica_id], voter]
        )

    def without_voter(self, replica_id: int) -> VoterSet:
        return VoterSet([each for each in self._voters.values() if each.key.replica_id != replica_id])

    def to_record(self) -> Any:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.key.replica_id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[VotersRecord.Endpoint(name=n, host=h, port=p) for n, h, p in voter.endpoints],
                    kraft_version_feature=VotersRecord.KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                    ),
                )
                for voter in self.voters()
            ],
        )

    def is_too_large(self) -> bool:
        """Returns whether the record of this set would be larger than `MAX_VOTERS_BYTES`."""
        record = self.to_record()
        return len(record.encode(record.version)) > MAX_VOTERS_BYTES

    @classmethod
    def from_record(cls, record: Any) -> VoterSet:
        return cls(
            Voter(
                ReplicaKey(each.voter_id, each.voter_directory_id),
                tuple([(end.name, end.host, end.port) for end in each.endpoints]),
                (each.kraft_version_feature.min_supported_version, each.kraft_version_feature.max_supported_version),
            )
            for each in record.voters
        )


NO_VOTERS: Final = VoterSet()


class VoterHistory:
    """The voter set and kraft.version at each offset where they changed. A truncation undoes changes."""

    def __init__(self, static: VoterSet) -> None:
        self._static = static
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def latest(self) -> VoterSet:
        """The latest voter set, even if it is not committed. Raft's rule for adding or removing a single voter requires
        this.
        """
        return self._sets[-1][1] if self._sets else self._static

    @property
    def latest_offset(self) -> int:
        """The offset of the latest voter set in the log, or BEFORE_LOG if no record of the log contains that set."""
        return self._sets[-1][0] if self._sets else BEFORE_LOG

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    @property
    def in_log(self) -> bool:
        """Whether the voter set comes from the log, or from a snapshot of the log. False if it comes only from the
        checkpoint at offset 0.
        """
        return bool(self._sets) and self._sets[-1][0] != BEFORE_LOG

    def set_voters(self, offset: int, voters: VoterSet) -> None:
        self._sets.append((offset, voters))

    def set_version(self, offset: int, version: int) -> None:
        self._versions.append((offset, version))

    def truncate(self, end_offset: int) -> None:
        self._sets = [each for each in self._sets if each[0] < end_offset]
        self._versions = [each for each in self._versions if each[0] < end_offset]

    def below(self, end_offset: int) -> VoterHistory:
        """Returns the part of the history that a snapshot with this end offset covers."""
        made = VoterHistory(self._static)
        made._sets, made._versions = list(self._sets), list(self._versions)
        made.truncate(end_offset)
        return made

    def forget_all(self) -> None:
        """Drops every set. Call this when a snapshot replaces the log."""
        self._sets.clear()
        self._versions.clear()
