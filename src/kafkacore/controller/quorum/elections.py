"""ElectLeaders: makes the preferred replica or, in an unclean election, any live replica the leader (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafkacore.controller.common.partition_change import Election, Target, change
from kafkacore.controller.quorum.decisions import MAX_RECORDS_PER_USER_OP, Decision, Settings, limit_records, min_isr
from kafkacore.controller.quorum.leaders import MAX_SINGLE_DECISIONS, LeaderChanges
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partition_records import ColumnRun, Record, record_count
from kafkacore.metadata.partitions import CHUNK_ROWS, NO_LEADER, rows_led_by, rows_not_led_by_the_first
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import ElectLeadersResponse
from kafkacore.runtime.slices import Work

PREFERRED: Final = 0
UNCLEAN: Final = 1
_ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
_FAILED: Final = {
    PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
Result = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult


ROWS_OF_A_STEP: Final = 2_000  # the number of partitions to decide before the event loop does other work


class LeaderElection:
    """Handles one ElectLeaders request."""

    def __init__(self, image: MetadataImage, settings: Settings) -> None:
        self._image, self._settings = image, settings
        self._changes = LeaderChanges(image, settings)
        self._records: list[Record] = []
        self._made = 0  # the number of log records made; a run (many records in columns) counts as all its records
        self._decided: set[int] = set()  # image rows of the partitions that `_in_columns` has decided
        self._elected: set[int] = set()  # the rows in `_decided` whose leader changes

    def decide(self, request: Any) -> Work[Decision]:
        """Holds the elections. Raises INVALID_REQUEST for an unknown election type, POLICY_VIOLATION if the request
        makes too many changes."""
        kind = request.election_type
        if kind not in _ELECTIONS:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        if request.topic_partitions is None:
            asked = yield from self._everywhere(kind)
        else:
            asked = [(each.topic, each.partitions) for each in request.topic_partitions]
        if sum(len(partitions) for _, partitions in asked) > MAX_SINGLE_DECISIONS:
            yield from self._in_columns(asked, kind)
        results = []
        for topic, partitions in asked:
            results.append((yield from self._topic(topic, partitions, kind)))
        return Decision(self._records, ElectLeadersResponse(replica_election_results=results), atomic=False)

    def _everywhere(self, kind: int) -> Work[list[tuple[str, list[int]]]]:
        """Returns all partitions that need an election of this kind."""
        chunks = self._image.partition_chunks
        rows = rows_led_by(chunks, NO_LEADER) if kind == UNCLEAN else rows_not_led_by_the_first(chunks)
        found: dict[int, list[int]] = {}
        for row in rows:
            yield
            chunk, index = chunks[row // CHUNK_ROWS], row % CHUNK_ROWS
            found.setdefault(chunk.topic[index], []).append(chunk.partition[index])
        return [(self._image.topic_at(row).name, partitions) for row, partitions in found.items()]

    def _in_columns(self, asked: list[tuple[str, list[int]]], kind: int) -> Work[None]:
        """Makes one decision for all partitions with the same state, and stores the results, which `_elect` looks up.
        Partitions beyond a request's limit of records are decided one by one later. If one of these partitions would
        change, the whole request fails."""
        found: set[int] = set()
        for name, partitions in asked:
            yield
            topic = self._image.topic(name)
            if topic is None:
                continue
            for partition in partitions:
                yield
                row = topic.row(partition)
                full = len(found) >= MAX_RECORDS_PER_USER_OP
                if row >= 0 and not full and not self._is_settled(row, kind):
                    found.add(row)
        changes = LeaderChanges(self._image, self._settings, election=_ELECTIONS[kind])
        ordered = sorted(found)
        for at in range(0, len(ordered), ROWS_OF_A_STEP):
            yield
            part = ordered[at : at + ROWS_OF_A_STEP]
            columns, odd = changes.by_kind(part)
            self._decided.update(part)
            self._decided.difference_update(odd.tolist())
            if columns is not None:
                assert columns.rows is not None
                self._elected.update(columns.rows.tolist())
                self._add(ColumnRun(columns, 0, len(columns)))

    def _add(self, record: Record) -> None:
        self._records.append(record)
        self._made += record_count((record,))
        limit_records(self._made)

    def _topic(self, name: str, partitions: Iterable[int], kind: int) -> Work[Any]:
        result = Result(topic=name)
        yield
        for partition in partitions:
            yield
            error, message = self._elect(name, partition, kind)
            result.partition_result.append(
                PartitionResult(partition_id=partition, error_code=error, error_message=message)
            )
        return result

    def _elect(self, name: str, partition: int, kind: int) -> tuple[ErrorCode, str | None]:
        topic = self._image.topic(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        row = topic.row(partition)
        if row < 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition}"
        if row in self._decided:
            return (ErrorCode.NONE, None) if row in self._elected else (_FAILED[kind], _FAILED[kind].message)
        if self._is_settled(row, kind):
            return ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message
        was = self._image.partition_at(row)
        rules = self._changes.rules(was, min_isr(self._image, self._settings, topic))
        record = change(was, topic.topic_id, Target(election=_ELECTIONS[kind]), rules)
        if record is None:
            return _FAILED[kind], _FAILED[kind].message
        self._add(record)
        return ErrorCode.NONE, None

    def _is_settled(self, row: int, kind: int) -> bool:
        chunk, index = self._image.partition_chunks[row // CHUNK_ROWS], row % CHUNK_ROWS
        leader = chunk.leader[index]
        return leader == chunk.replicas[index * chunk.width] if kind == PREFERRED else leader != NO_LEADER
