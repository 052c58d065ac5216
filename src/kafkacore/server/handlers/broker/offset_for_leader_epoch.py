"""OffsetForLeaderEpoch: returns the offset at which an epoch ended. A client or a follower uses that offset to find
where its log diverges from the leader's log (KIP-101, KIP-320)."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext

Asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Partition = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(
    broker: BrokerContext, call: RequestContext, request: OffsetForLeaderEpochRequest
) -> Work[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        shown = Topic(topic=topic.topic)
        for each in topic.partitions:
            shown.partitions.append(_end(broker, topic.topic, each))
            yield
        response.topics.append(shown)
    return response


def _end(broker: BrokerContext, topic: str, asked: Asked) -> Partition:
    partition, error = broker.replicas.locate(broker.image, topic, asked.partition, asked.current_leader_epoch)
    if partition is None:
        return Partition(partition=asked.partition, error_code=error)
    epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    return Partition(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
