"""DescribeProducers: returns the producers of a partition and their open transactions (KIP-664)."""

from __future__ import annotations

from typing import Final

from kafkacore._fast.log.producer_states import producer_states
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext
from kafkacore.storage.names import topic_name_problem

ANY_EPOCH: Final = -1
Topic = DescribeProducersResponse.TopicResponse
Partition = DescribeProducersResponse.PartitionResponse
State = DescribeProducersResponse.ProducerState


def handle(
    broker: BrokerContext, call: RequestContext, request: DescribeProducersRequest
) -> Work[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        shown = Topic(name=topic.name)
        problem = topic_name_problem(topic.name)
        for index in topic.partition_indexes:
            shown.partitions.append((yield from _describe(broker, topic.name, index, problem)))
            yield
        response.topics.append(shown)
    return response


def _describe(broker: BrokerContext, topic: str, index: int, problem: str | None) -> Work[Partition]:
    if problem:
        return Partition(
            partition_index=index,
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            error_message=f"Topic name is invalid: {problem}",
        )
    # A follower answers too, so that an administrator can look for a hanging transaction on every replica.
    partition, error = broker.replicas.locate(broker.image, topic, index, ANY_EPOCH, leader_only=False)
    if partition is None:
        return Partition(partition_index=index, error_code=error, error_message=error.message)
    shown = Partition(partition_index=index)
    for each in sorted(producer_states(partition)):
        shown.active_producers.append(
            State(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_first_offset,
            )
        )
        yield
    return shown
