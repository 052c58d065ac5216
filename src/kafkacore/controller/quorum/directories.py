"""AssignReplicasToDirs: a broker reports the log directories of its replicas (KIP-858)."""

from __future__ import annotations

from typing import Any

from kafkacore.controller.common.partition_change import Target, change
from kafkacore.controller.quorum.cluster import check_epoch
from kafkacore.controller.quorum.decisions import Decision, Settings, min_isr
from kafkacore.controller.quorum.leaders import LeaderChanges
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partition_records import Record
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AssignReplicasToDirsResponse
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import Work


def assign(image: MetadataImage, settings: Settings, request: Any) -> Work[Decision]:
    """Stores the assignments of replicas to directories. If the reported directory is offline, other brokers become the
    leaders of its partitions. Raises STALE_BROKER_EPOCH."""
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    assignment = _Assignment(image, settings, broker)
    made = AssignReplicasToDirsResponse
    told = []
    for directory in request.directories:
        yield
        topics = []
        for topic in directory.topics:
            yield
            answer = made.TopicData(topic_id=topic.topic_id)
            for each in topic.partitions:
                yield
                error = assignment.one(directory.id, topic.topic_id, each.partition_index)
                answer.partitions.append(made.PartitionData(partition_index=each.partition_index, error_code=error))
            topics.append(answer)
        told.append(made.DirectoryData(id=directory.id, topics=topics))
    records = assignment.records
    records += LeaderChanges(image, settings, removed={broker.broker_id}).records(sorted(assignment.offline_rows))
    return Decision(records, made(directories=told), atomic=False)


class _Assignment:
    def __init__(self, image: MetadataImage, settings: Settings, broker: BrokerRegistration) -> None:
        self._image, self._settings, self._broker = image, settings, broker
        self._changes = LeaderChanges(image, settings)
        self.records: list[Record] = []
        self.offline_rows: set[int] = set()

    def one(self, directory: Uuid, topic_id: Uuid, index: int) -> ErrorCode:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = self._image.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._broker.broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._record(directory, topic, index)
        return ErrorCode.NONE

    def _record(self, directory: Uuid, topic: Topic, index: int) -> None:
        row = topic.partition_rows[index]
        partition = self._image.partition_at(row)
        least = min_isr(self._image, self._settings, topic)
        broker_id, is_online = self._broker.broker_id, self._broker.has_online_directory
        # A broker that no longer has the former directory of a replica has made a new, empty log. So the replica is no
        # longer an eligible leader, even if the broker was shut down cleanly. Apache Kafka 4.3 can elect it.
        is_new = is_online(directory) and not is_online(partition.directory(broker_id))
        target = Target(directories={broker_id: directory}, ineligible=frozenset([broker_id] if is_new else ()))
        record = change(partition, topic.topic_id, target, self._changes.rules(partition, least))
        if record is not None:
            self.records.append(record)
        if not self._broker.has_online_directory(directory):
            self.offline_rows.add(row)
