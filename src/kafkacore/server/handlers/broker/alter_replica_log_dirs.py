"""AlterReplicaLogDirs: moves replicas of this broker to other log directories (KIP-113)."""

from __future__ import annotations

import logging
from typing import Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext
from kafkacore.storage.future_logs import MoveCancelled
from kafkacore.storage.names import future_name_fits

LOG: Final = logging.getLogger("kafkacore.server")

Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Partition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


async def handle(
    broker: BrokerContext, call: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[str, Topic] = {}
    slice_ = Slice()
    for directory in request.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, Topic(topic_name=topic.name))
            for index in topic.partitions:
                await slice_.give_way()
                error = await _alter(broker, topic.name, index, directory.path)
                result.partitions.append(Partition(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _alter(broker: BrokerContext, topic: str, index: int, absolute: str) -> ErrorCode:
    """Makes Kafka's checks in Kafka's order, and starts the move. The move continues after this function returns."""
    key, logs, moves = (topic, index), broker.logs, broker.moves
    path = logs.directory_path(absolute)
    if not future_name_fits(topic, index):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not logs.serves(path):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if logs.is_cordoned(path):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partition, error = broker.replicas.locate(broker.image, topic, index, -1, leader_only=False)
    if error == ErrorCode.KAFKA_STORAGE_ERROR:
        return error
    if partition is None:
        # If the partition is created later, its log will be created in this directory.
        logs.prefer(topic, index, path)
        return ErrorCode.REPLICA_NOT_AVAILABLE if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else error
    future = logs.future_of(partition)
    if future is not None and future.directory.path != path:
        await moves.cancel(key)
    if path in (partition.directory.path, moves.destination(key)):
        return ErrorCode.NONE
    if not logs.all_serve:
        # An offline directory may hold the future log of an earlier move. So a move to another directory must not
        # start.
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        moves.begin(key, path)
    except MoveCancelled as error_text:
        LOG.info("%s-%d does not move to %s: %s", topic, index, path, error_text)
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
