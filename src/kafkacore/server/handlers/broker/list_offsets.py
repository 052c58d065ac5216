"""ListOffsets: returns the offset of a log's end, of its start, or of the first record at or after a time (KIP-79,
KIP-207, KIP-734, KIP-405, KIP-1005, KIP-1023)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
# The first version of the API that supports each of these special timestamps.
SINCE: Final = {
    LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11,
}  # fmt: skip
CONSUMER: Final = -1  # replica id of a client
DEBUGGER: Final = -2
READ_COMMITTED: Final = 1
EPOCH_SINCE: Final = 4
UNAVAILABLE_SINCE: Final = 5
ANSWERED_BEHIND: Final = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)

Asked = ListOffsetsRequest.ListOffsetsPartition
Topic = ListOffsetsResponse.ListOffsetsTopicResponse
Partition = ListOffsetsResponse.ListOffsetsPartitionResponse


async def handle(broker: BrokerContext, call: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    slice_ = Slice()
    asked: dict[tuple[str, int], int] = Counter()
    for topic in request.topics:
        for each in topic.partitions:
            await slice_.give_way()
            asked[topic.name, each.partition_index] += 1
    response = ListOffsetsResponse()
    for topic in request.topics:
        found = []
        for each in topic.partitions:
            await slice_.give_way()
            if asked[topic.name, each.partition_index] > 1:
                found.append(_refused(each, ErrorCode.INVALID_REQUEST))
            elif each.timestamp < 0 and call.api_version < SINCE.get(each.timestamp, 0x7FFF):
                found.append(_refused(each, ErrorCode.UNSUPPORTED_VERSION))
            else:
                found.append(await _find(broker, call, request, topic.name, each))
        response.topics.append(Topic(name=topic.name, partitions=found))
    return response


def _refused(asked: Asked, error: ErrorCode) -> Partition:
    return Partition(partition_index=asked.partition_index, error_code=error)


async def _find(
    broker: BrokerContext, call: RequestContext, request: ListOffsetsRequest, topic: str, asked: Asked
) -> Partition:
    leader_only = request.replica_id != DEBUGGER
    partition, error = broker.replicas.locate(
        broker.image, topic, asked.partition_index, asked.current_leader_epoch, leader_only=leader_only
    )
    if partition is None:
        return _refused(asked, error)
    # After an election, the high watermark may still be below the start of the leader's epoch (KIP-207).
    behind = request.replica_id == CONSUMER and partition.is_behind
    bound = _bound(partition, request)
    try:
        offset, timestamp, epoch = await _offset(broker, partition, asked.timestamp, bound)
    except OSError:
        return _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    if behind and (asked.timestamp == LATEST or (asked.timestamp not in ANSWERED_BEHIND and offset < 0)):
        told = call.api_version >= UNAVAILABLE_SINCE
        return _refused(asked, ErrorCode.OFFSET_NOT_AVAILABLE if told else ErrorCode.LEADER_NOT_AVAILABLE)
    found = Partition(partition_index=asked.partition_index, timestamp=timestamp, offset=offset)
    if call.api_version >= EPOCH_SINCE:
        found.leader_epoch = epoch
    return found


def _bound(partition: PartitionHandle, request: ListOffsetsRequest) -> int:
    """Returns the offset at which the reads of the request's sender end, with the request's isolation level."""
    if request.replica_id != CONSUMER:
        return partition.end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


async def _offset(
    broker: BrokerContext, partition: PartitionHandle, timestamp: int, bound: int
) -> tuple[int, int, int]:
    if timestamp == LATEST:
        return bound, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return start, -1, next((epoch for epoch, begins in partition.leader_epochs()[:1] if begins <= start), -1)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    # This runs on another thread, because the search may read an index from the disk.
    loop = asyncio.get_running_loop()
    if timestamp == MAX_TIMESTAMP:
        found: tuple[int, int, int] = await loop.run_in_executor(broker.blocking, partition.offset_of_max_timestamp)
    else:
        found = await loop.run_in_executor(broker.blocking, partition.offset_by_time, timestamp, bound)
    return found if 0 <= found[0] < bound else (-1, -1, -1)
