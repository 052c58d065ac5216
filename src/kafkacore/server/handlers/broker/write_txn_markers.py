"""WriteTxnMarkers: a transaction coordinator ends a transaction in partitions of this broker (KIP-98, KIP-1228).

A marker is a control batch. The response waits until every in-sync replica has the marker. The marker's producer epoch
and coordinator epoch fence older coordinators. Once every in-sync replica has a marker in `__consumer_offsets`, this
handler also ends the transaction in the group coordinator, which then commits or drops the transaction's pending
offsets.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ProduceRequest, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker.produce import Part, acknowledged
from kafkacore.storage.names import OFFSETS_TOPIC

ALL_ACKS: Final = -1
ANY_EPOCH: Final = -1
BUMPS_EPOCHS: Final = 2  # since this transaction.version, each transaction has its own producer epoch
NO_SEQUENCE: Final = -1
MARKER_VERSION: Final = 0
Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
Partition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


async def handle(
    broker: BrokerContext, call: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Writes the markers. Never raises, because each partition has its own error."""
    slice_ = Slice()
    results: dict[int, dict[str, list[Part]]] = {}  # one result for each producer, as in Apache Kafka
    parts: list[Part] = []
    of_groups: list[tuple[Marker, Part]] = []
    for marker in request.markers:
        topics = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                await slice_.give_way()
                part = await _write(broker, marker, topic.name, index)
                topics.setdefault(topic.name, []).append(part)
                parts.append(part)
                if topic.name == OFFSETS_TOPIC:
                    of_groups.append((marker, part))
    await acknowledged(broker, call, parts, broker.config.request_timeout_ms)
    for marker, part in of_groups:
        await slice_.give_way()
        if not part.answer.error_code:
            committed, offset = marker.transaction_result, part.answer.base_offset
            broker.groups.end_transaction(part.data.index, marker.producer_id, committed, offset)
    response = WriteTxnMarkersResponse()
    for producer_id, topics in results.items():
        result = Result(producer_id=producer_id)
        for name, written in topics.items():
            await slice_.give_way()
            result.topics.append(Topic(name=name, partitions=[_told(part) for part in written]))
        response.markers.append(result)
    return response


async def _write(broker: BrokerContext, marker: Marker, topic: str, index: int) -> Part:
    partition, error = broker.replicas.locate(broker.image, topic, index, ANY_EPOCH)
    part = Part(ProduceRequest.PartitionProduceData(index=index), partition, error)
    if partition is None:
        return part
    if topic == OFFSETS_TOPIC and not broker.groups.takes_markers(index):
        # A transaction coordinator does not understand the errors of a group coordinator.
        part.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return part
    origin = "bumped marker" if marker.transaction_version >= BUMPS_EPOCHS else "coordinator"
    batch = control_batch(marker, broker.waits.wall_ms())
    async with broker.transactions.ending(partition, marker.producer_id):
        try:
            # This runs on another thread, because the append may block until its log is created or rolled.
            done = await asyncio.get_running_loop().run_in_executor(
                broker.blocking, partition.append, batch, ALL_ACKS, False, origin
            )
        except OSError:  # the log directory is offline; the node has reported it
            part.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return part
    part.ack = done.ack
    part.answer.error_code = done.error
    part.answer.base_offset = done.first_offset
    return part


def control_batch(marker: Marker, now_ms: int) -> bytes:
    """Returns a batch with one control record. The key of the record has the version and the kind of marker. The value
    has the version and the coordinator's epoch."""
    builder = RecordBatchBuilder(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )
    kind = int(marker.transaction_result)
    builder.append(
        now_ms,
        struct.pack(">hh", MARKER_VERSION, kind),
        struct.pack(">hi", MARKER_VERSION, marker.coordinator_epoch),
    )
    return bytes(builder.build())


def _told(part: Part) -> Partition:
    return Partition(partition_index=part.data.index, error_code=part.answer.error_code)
