"""ElectLeaders: the preferred replica, or any live one, becomes the leader (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafkacore.controller.common.partition_change import Election, Target, change
from kafkacore.controller.quorum.decisions import Decision, Settings, limit_records, min_isr
from kafkacore.controller.quorum.leaders import LeaderChanges
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import NO_LEADER, rows_led_by, rows_not_led_by_the_first
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import ElectLeadersResponse, Message
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


class LeaderElection:
    """One ElectLeaders request."""

    def __init__(self, image: MetadataImage, settings: Settings) -> None:
        self._image, self._settings = image, settings
        self._changes = LeaderChanges(image, settings)
        self._records: list[Message] = []

    def decide(self, request: Any) -> Work[Decision]:
        """Raises INVALID_REQUEST for an unknown election type, POLICY_VIOLATION for too many changes at once."""
        kind = request.election_type
        if kind not in _ELECTIONS:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        if request.topic_partitions is None:
            results = yield from self._everywhere(kind)
        else:
            results = []
            for each in request.topic_partitions:
                results.append((yield from self._topic(each.topic, each.partitions, kind)))
        return Decision(self._records, ElectLeadersResponse(replica_election_results=results), atomic=False)

    def _everywhere(self, kind: int) -> Work[list[Any]]:
        """Elects leaders for all partitions that their preferred replica does not lead. They are few even in a cluster
        of a million partitions."""
        chunks = self._image.partition_chunks
        rows = rows_led_by(chunks, NO_LEADER) if kind == UNCLEAN else rows_not_led_by_the_first(chunks)
        found: dict[int, list[int]] = {}
        for row in rows:
            yield
            partition = self._image.partition_at(row)
            found.setdefault(partition.topic_row, []).append(partition.partition)
        results = []
        for row, partitions in found.items():
            results.append((yield from self._topic(self._image.topic_at(row).name, partitions, kind)))
        return results

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
        was = self._image.partition(topic, partition)
        if was is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition}"
        settled = was.leader == was.replicas[0] if kind == PREFERRED else was.leader != NO_LEADER
        if settled:
            return ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message
        rules = self._changes.rules(was, min_isr(self._image, self._settings, topic))
        record = change(was, topic.topic_id, Target(election=_ELECTIONS[kind]), rules)
        if record is None:
            return _FAILED[kind], _FAILED[kind].message
        self._records.append(record)
        limit_records(len(self._records))
        return ErrorCode.NONE, None
