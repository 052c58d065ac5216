"""Produce on the handler loop, for requests that the processors do not serve. This handler calls the same native append
as the processors, so the checks and the responses are the same."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from kafkacore._fast.log.partition_handle import AppendResult, PartitionHandle
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, ProtocolError
from kafkacore.protocol.messages import ProduceRequest, ProduceResponse
from kafkacore.runtime.slices import Slice, Work, finish
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import leaders
from kafkacore.server.handlers.broker.produce_in_transaction import NO_SEQUENCE, Producer, verify
from kafkacore.server.transactions import ADDS_SINCE
from kafkacore.storage.names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kafkacore._fast.log.partition_handle import Acknowledgement
    from kafkacore.server.transactions import Check

NO_ACKS: Final = 0
ALL_ACKS: Final = -1
MESSAGES_SINCE: Final = 8  # since this version, a response contains the refused record and the reason (KIP-467)
LEADERS_SINCE: Final = 10
TOPIC_IDS_SINCE: Final = 13
ADMIN_CLIENT_ID: Final = "__admin_client"  # a client with this name may write to Kafka's internal topics

AskedTopic = ProduceRequest.TopicProduceData
Asked = ProduceRequest.PartitionProduceData
Topic = ProduceResponse.TopicProduceResponse
Partition = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
_REFUSALS: Final = {
    ErrorCode.INVALID_TXN_STATE: "The transaction has already ended.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "An earlier batch of the transaction has not been appended yet.",
}
LOG: Final = logging.getLogger("kafkacore.server")


class Part:
    """One partition of the request, its result, and the offset for which the result waits."""

    __slots__ = ("ack", "answer", "check", "data", "partition", "producer", "sequence")

    def __init__(self, data: Asked, partition: PartitionHandle | None, error: ErrorCode) -> None:
        self.data, self.partition = data, partition
        self.answer = Partition(index=data.index, base_offset=-1, error_code=error)
        self.ack: Acknowledgement | None = None
        # Only a transactional batch has a producer, a base sequence and a check.
        self.producer: Producer | None = None
        self.sequence = NO_SEQUENCE
        self.check: Check | None = None


async def handle(broker: BrokerContext, call: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    response = ProduceResponse()
    parts = await finish(_parts(broker, call, request, response))
    slice_ = Slice()
    # The batches are appended one after another, because the batches of one producer must stay in order.
    failed = None
    async with AsyncExitStack() as checks:
        if request.transactional_id is not None:
            await verify(broker, call, request.transactional_id, parts, checks)
        for part in parts:
            await slice_.give_way()
            failed = await _append(broker, call, request.acks, part) or failed
    if failed is not None:
        LOG.warning("a Produce of client %r failed for some partitions: %s", call.client_id, failed)
    if request.acks == NO_ACKS:
        errors = await finish(_errors(parts))
        if errors:
            # The producer has asked for no response, so only a closed connection can show the producer an error.
            names = ", ".join(sorted(error.name for error in errors))
            raise ProtocolError(f"Produce with acks=0 of client {call.client_id!r} failed with {names}")
        return None
    await acknowledged(broker, call, parts, request.timeout_ms)
    if call.api_version >= LEADERS_SINCE and (moved := await finish(_new_leaders(parts))):
        response.node_endpoints = leaders.endpoints(broker, call, moved, ProduceResponse.NodeEndpoint)
    return response


def _parts(
    broker: BrokerContext, call: RequestContext, request: ProduceRequest, response: ProduceResponse
) -> Work[list[Part]]:
    """Puts a result for each partition into `response`. If the request contains a partition twice, the partition has
    one result, at its first position, and only its last batch is appended. Apache Kafka does the same, because it
    collects the batches of a request in a map."""
    parts: list[Part] = []
    named: dict[PartitionHandle, Part] = {}
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            yield
            partition, error = _find(broker, call, request.acks, topic, data.index)
            if partition is not None and partition in named:
                named[partition].data = data
                continue
            part = Part(data, partition, error)
            parts.append(part)
            answers.append(part.answer)
            if partition is not None:
                named[partition] = part
        if answers or not topic.partition_data:
            response.responses.append(Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return parts


def _find(
    broker: BrokerContext, call: RequestContext, acks: int, topic: AskedTopic, index: int
) -> tuple[PartitionHandle | None, ErrorCode]:
    """Returns the partition, or the error that forbids an append to it."""
    if call.api_version >= TOPIC_IDS_SINCE:
        partition = broker.replicas.by_id(topic.topic_id, index)
    else:
        partition = broker.replicas.by_name(topic.name, index)
    if not ALL_ACKS <= acks <= 1:
        return partition, ErrorCode.INVALID_REQUIRED_ACKS
    if partition is None:
        unknown_id = call.api_version >= TOPIC_IDS_SINCE and broker.image.topic_by_id(topic.topic_id) is None
        return None, ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT_ID:
        return partition, ErrorCode.INVALID_TOPIC_EXCEPTION
    return partition, ErrorCode.NONE


async def _append(broker: BrokerContext, call: RequestContext, acks: int, part: Part) -> OSError | None:
    """Appends one part. Returns the error if the operating system refuses the write."""
    answer, partition = part.answer, part.partition
    if partition is None or answer.error_code != ErrorCode.NONE:
        return None
    try:
        # This runs on another thread, because the append may block until its log is created or rolled.
        done = await _appended(broker, call, acks, part, partition)
    except OSError as error:  # the producer must still get the results of the batches that were appended
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return error
    if isinstance(done, ErrorCode):
        answer.error_code = done
        answer.error_message = _REFUSALS.get(done)
        if done == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _hint(broker, call, partition, answer)
        return None
    part.ack = done.ack
    answer.error_code = ErrorCode(done.error)
    if done.error == ErrorCode.NONE:
        answer.base_offset = done.first_offset
        answer.log_append_time_ms = done.log_append_time_ms
        answer.log_start_offset = done.log_start_offset
    elif done.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        _hint(broker, call, partition, answer)
    elif call.api_version >= MESSAGES_SINCE:
        answer.error_message = done.error_message
        answer.record_errors = [
            RecordError(batch_index=index, batch_index_error_message=text) for index, text in done.record_errors
        ]
    return None


async def _appended(
    broker: BrokerContext, call: RequestContext, acks: int, part: Part, partition: PartitionHandle
) -> AppendResult | ErrorCode:
    """Appends the batch. Returns an error if the verification of the batch's transaction is no longer valid, or if an
    earlier batch of the transaction must come first."""
    run, records = asyncio.get_running_loop().run_in_executor, part.data.records or b""
    if part.check is None or part.producer is None:
        return await run(broker.blocking, partition.append, records, acks, False)
    async with part.check.appending:
        if part.check.refusal != ErrorCode.NONE:
            return part.check.refusal
        if broker.transactions.overtakes(partition, *part.producer, part.sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        origin = "bumped transaction" if call.api_version >= ADDS_SINCE else "transaction"
        done = await run(broker.blocking, partition.append, records, acks, False, origin)
        if done.error == ErrorCode.NONE:
            broker.transactions.appended(part.check, *part.producer)
        return done


def _errors(parts: list[Part]) -> Work[set[ErrorCode]]:
    found = set()
    for part in parts:
        yield
        if part.answer.error_code != ErrorCode.NONE:
            found.add(ErrorCode(part.answer.error_code))
    return found


def _new_leaders(parts: list[Part]) -> Work[set[int]]:
    found = set()
    for part in parts:
        yield
        if part.answer.current_leader.leader_id != leaders.NOBODY[0]:
            found.add(part.answer.current_leader.leader_id)
    return found


def _hint(broker: BrokerContext, call: RequestContext, partition: PartitionHandle, answer: Partition) -> None:
    if call.api_version >= LEADERS_SINCE:
        leader = leaders.current_leader(broker, partition.topic, partition.index)
        answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader


async def acknowledged(broker: BrokerContext, call: RequestContext, parts: list[Part], timeout_ms: int) -> None:
    """Waits until every in-sync replica has the records and every flush that is due has ended, or until the timeout."""
    deadline_ms = broker.waits.now_ms() + timeout_ms
    slice_ = Slice()
    for part in parts:
        await slice_.give_way()
        partition, answer = part.partition, part.answer
        if partition is None or part.ack is None:
            continue
        while answer.error_code == ErrorCode.NONE:
            error = partition.acknowledged(*part.ack)
            if error is not None:
                answer.error_code = ErrorCode(error)
                if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    _hint(broker, call, partition, answer)
                break
            left_ms = deadline_ms - broker.waits.now_ms()
            is_late = left_ms <= 0 or not await broker.waits.any([(partition, *part.ack)], left_ms, "Produce")
            if is_late and partition.acknowledged(*part.ack) is None:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
                break
