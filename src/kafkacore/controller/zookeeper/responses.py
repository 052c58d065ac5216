"""Turns a broker's response into the event that handles it."""

from __future__ import annotations

import logging
from typing import Any, Final

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.events import Event
from kafkacore.controller.zookeeper.leadership import TopicPartition
from kafkacore.controller.zookeeper.protocols.broker_failure import LeaderAndIsrResponses, LeaderAndIsrResult
from kafkacore.controller.zookeeper.protocols.topic_deletion import StopReplicaResponse, StopReplicaResponses
from kafkacore.controller.zookeeper.request_batches import ControlRequest
from kafkacore.controller.zookeeper.surroundings import LiveBroker
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode

LOG: Final = logging.getLogger("kafkacore.state.change")
_TOPIC_IDS_SINCE: Final = 5  # the first version of LeaderAndIsr whose response has topic ids instead of names


def event_of(context: ControllerContext, broker: LiveBroker, request: ControlRequest, response: Any) -> Event | None:
    """Returns the event that handles the response, or None if the response changes nothing."""
    if response.error_code != ErrorCode.NONE:
        LOG.error("broker %d answers request %d with error %d", broker.broker_id, request.api_key, response.error_code)
    if request.api_key == ApiKey.STOP_REPLICA:
        deleted = _deletions(request)
        if not deleted:
            return None
        named = {
            TopicPartition(each.topic_name, each.partition_index): each.error_code for each in response.partition_errors
        }
        # If a request failed as a whole, its response lists no partitions.
        errors = {name: named.get(name, response.error_code) for name in deleted}
        return StopReplicaResponses([StopReplicaResponse(broker, response.error_code, errors)])
    if request.api_key != ApiKey.LEADER_AND_ISR or response.error_code != ErrorCode.NONE:
        return None
    errors = {}
    if request.api_version < _TOPIC_IDS_SINCE:
        for each in response.partition_errors:
            errors[TopicPartition(each.topic_name, each.partition_index)] = each.error_code
    else:
        for topic in response.topics:
            name = context.topic_names.get(topic.topic_id)
            for each in topic.partition_errors if name is not None else ():
                errors[TopicPartition(name or "", each.partition_index)] = each.error_code
    return LeaderAndIsrResponses([LeaderAndIsrResult(broker, errors)]) if _matters(broker, context, errors) else None


def _matters(broker: LiveBroker, context: ControllerContext, errors: dict[TopicPartition, int]) -> bool:
    """Returns whether a LeaderAndIsr response needs an event. It does if it reports a failed directory, or if a
    directory of the broker had failed before and may work again."""
    if context.rows_on_offline_directories.get(broker.broker_id):
        return True
    return any(error == ErrorCode.KAFKA_STORAGE_ERROR for error in errors.values())


def _deletions(request: ControlRequest) -> list[TopicPartition]:
    """Returns the partitions that a StopReplica asked to delete."""
    body = request.body
    if request.api_version >= 3:
        return [
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in body.topic_states
            for each in topic.partition_states
            if each.delete_partition
        ]
    if not body.delete_partitions:
        return []
    if request.api_version == 0:
        return [TopicPartition(each.topic_name, each.partition_index) for each in body.ungrouped_partitions]
    return [TopicPartition(topic.name, index) for topic in body.topics for index in topic.partition_indexes]
