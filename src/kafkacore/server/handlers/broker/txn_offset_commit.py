"""TxnOffsetCommit: a producer commits a group's offsets as part of the producer's transaction (KIP-98, KIP-447). The
transaction coordinator is another broker.

Before this broker appends the offsets, it asks the transaction coordinator whether the group's partition of
`__consumer_offsets` belongs to the transaction (KIP-890). A leader asks the same before it appends a transaction's
first batch to any partition.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kafkacore._fast.log.partition_handle import AppendResult, PartitionHandle
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.coordinator.group.answers import append_error
from kafkacore.coordinator.group.records import CommittedOffset
from kafkacore.coordinator.group.transactional import Commits, batch_records
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import ProduceRequest, TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker.produce import Part, acknowledged
from kafkacore.server.transactions import ABORTABLE_SINCE, ADDS_SINCE, Check
from kafkacore.storage.names import OFFSETS_TOPIC

ALL_ACKS: Final = -1
ANY_EPOCH: Final = -1
LOADING_SINCE: Final = 2  # since this version, a producer retries after COORDINATOR_LOAD_IN_PROGRESS
KNOWS_ABORTABLE: Final = 4  # since this version, a producer knows TRANSACTION_ABORTABLE
LETS_ADD: Final = 5  # since this version, the broker adds the partition to the transaction (transaction.version 2)

Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


async def handle(
    broker: BrokerContext, call: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Handles the request. Partitions that do not exist, or whose metadata is too long, get their own errors. All other
    partitions share one result."""
    response = TxnOffsetCommitResponse()
    commits: Commits = []
    accepted: list[Partition] = []
    now_ms, slice_ = broker.waits.wall_ms(), Slice()
    for topic in request.topics:
        known = broker.image.topic(topic.name)
        answers = []
        for each in topic.partitions:
            await slice_.give_way()
            answer = Partition(partition_index=each.partition_index)
            metadata = each.committed_metadata or ""
            if known is None or broker.image.partition(known, each.partition_index) is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > broker.groups.settings.metadata_max_bytes:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offset = CommittedOffset(each.committed_offset, each.committed_leader_epoch, metadata, now_ms)
                commits.append((topic.name, each.partition_index, offset))
                accepted.append(answer)
            answers.append(answer)
        response.topics.append(Topic(name=topic.name, partitions=answers))
    error = await _commit(broker, call, request, commits) if commits else ErrorCode.NONE
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.api_version < LOADING_SINCE:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for answer in accepted:
        answer.error_code = error
    return response


async def _commit(
    broker: BrokerContext, call: RequestContext, request: TxnOffsetCommitRequest, commits: Commits
) -> ErrorCode:
    """Commits the offsets. Returns when every in-sync replica has the batch."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    index = broker.groups.partition_of(request.group_id)
    partition, error = broker.replicas.locate(broker.image, OFFSETS_TOPIC, index, ANY_EPOCH)
    if partition is None:
        return append_error(error)
    part = Part(ProduceRequest.PartitionProduceData(index=index), partition, ErrorCode.NONE)
    producer = request.producer_id, request.producer_epoch
    try:
        broker.groups.shard_of(request.group_id).validate_transactional(request)
        async with broker.transactions.checking(partition, request.producer_id) as check:
            if not broker.transactions.is_verified(partition, *producer):
                refused = await broker.transactions.verify(
                    request.transactional_id, *producer, [(OFFSETS_TOPIC, index)], _produce_version(call.api_version)
                )
                for reason in refused.values():
                    return append_error(reason.error)
            async with check.appending:
                error = await _append(broker, request, commits, check, part)
    except KafkaError as refusal:
        return ErrorCode(refusal.code)
    except OSError:  # the log directory is offline; the node has reported it
        return append_error(ErrorCode.KAFKA_STORAGE_ERROR)
    if error != ErrorCode.NONE:
        return append_error(error)
    await acknowledged(broker, call, [part], broker.config.offsets_commit_timeout_ms)
    return append_error(part.answer.error_code)


async def _append(
    broker: BrokerContext, request: TxnOffsetCommitRequest, commits: Commits, check: Check, part: Part
) -> ErrorCode:
    """Appends the batch. The caller holds `check.appending`, so WriteTxnMarkers cannot append a marker of the producer
    meanwhile. The shard therefore always learns of the offsets before it learns that the transaction has ended."""
    partition = part.partition
    assert partition is not None
    if check.refusal != ErrorCode.NONE:
        return check.refusal
    # During the verification, the group may have rebalanced, and the group's shard may have been loaded again.
    shard = broker.groups.shard_of(request.group_id)
    shard.validate_transactional(request)
    with shard.transactional_appending(request.group_id, request.producer_id, commits):
        done = await _appended(broker, partition, request, commits)
        if done is None:
            return ErrorCode.MESSAGE_TOO_LARGE
        if done.error != ErrorCode.NONE:
            return ErrorCode(done.error)
        if broker.groups.shard_of(request.group_id) is not shard:
            # The new shard may have been loaded without the batch, so the producer must send its offsets again.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        shard.transactional_appended(request.group_id, request.producer_id, done.first_offset, commits)
    broker.transactions.appended(check, request.producer_id, request.producer_epoch)
    part.ack = done.ack
    return ErrorCode.NONE


async def _appended(
    broker: BrokerContext, partition: PartitionHandle, request: TxnOffsetCommitRequest, commits: Commits
) -> AppendResult | None:
    """Appends all offsets in one batch. Returns None, and appends nothing, if they do not fit into one batch."""
    builder = RecordBatchBuilder(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch, base_sequence=0, transactional=True,
        codec=broker.config.offsets_topic_compression_codec, limit_bytes=broker.groups.max_batch_bytes(),
    )  # fmt: skip
    now_ms, slice_ = broker.waits.wall_ms(), Slice()
    for key, value in batch_records(request.group_id, commits):
        await slice_.give_way()
        if not builder.append(now_ms, key, value):
            return None
    # This runs on another thread, because the append may block until its log is created or rolled.
    return await asyncio.get_running_loop().run_in_executor(
        broker.blocking, partition.append, bytes(builder.build()), ALL_ACKS, False, "coordinator"
    )


def _produce_version(version: int) -> int:
    """Returns a version of Produce, for `Transactions.verify`. A producer with that version supports the same as a
    producer with this version of TxnOffsetCommit."""
    if version >= LETS_ADD:
        return ADDS_SINCE
    return ABORTABLE_SINCE if version >= KNOWS_ABORTABLE else ABORTABLE_SINCE - 1
