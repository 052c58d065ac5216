"""OffsetForLeaderEpoch: where an epoch ended, so that a client or follower finds where its log diverges (KIP-101,
KIP-320).
"""

from __future__ import annotations

from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafkacore.server.context import BrokerContext

Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Partition = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(
    broker: BrokerContext, call: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            Topic(topic=topic.topic, partitions=[_end(broker, topic.topic, each) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def _end(broker: BrokerContext, topic: str, asked: Any) -> Partition:
    partition, error = broker.replicas.locate(broker.image, topic, asked.partition, asked.current_leader_epoch)
    if partition is None:
        return Partition(partition=asked.partition, error_code=error)
    epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    return Partition(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
