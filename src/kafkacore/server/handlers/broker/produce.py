"""Produce on the handler loop, for requests that the processors do not serve. It has the same native append, so the
same checks and the same answers."""

from __future__ import annotations

import asyncio
from typing import Final

from kafkacore._fast.log import partition_watch as watch
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, ProtocolError
from kafkacore.protocol.messages import ProduceRequest, ProduceResponse
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import leaders
from kafkacore.storage.names import INTERNAL_TOPICS

NO_ACKS: Final = 0
ALL_ACKS: Final = -1
MESSAGES_SINCE: Final = 8  # the record and the reason of an error (KIP-467)
LEADERS_SINCE: Final = 10
TOPIC_IDS_SINCE: Final = 13
ADMIN_CLIENT_ID: Final = "__admin_client"  # a client of this name may write to Kafka's own topics

AskedTopic = ProduceRequest.TopicProduceData
Asked = ProduceRequest.PartitionProduceData
Topic = ProduceResponse.TopicProduceResponse
Partition = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
_Ack = tuple[int, int]  # a kind of `watch` and an offset
_Wait = tuple[PartitionHandle, _Ack, Partition]


async def handle(broker: BrokerContext, call: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    response = ProduceResponse()
    waiting: list[_Wait] = []
    slice_ = Slice()
    # One after the other: batches of one producer must not overtake each other.
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            await slice_.give_way()
            answer, partition, ack = await _append(broker, call, request.acks, topic, data)
            if partition is not None and ack is not None:
                waiting.append((partition, ack, answer))
            answers.append(answer)
        response.responses.append(Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if request.acks == NO_ACKS:
        errors = {each.error_code for topic in response.responses for each in topic.partition_responses} - {0}
        if errors:
            # A producer that asks for no answer learns of an error in no other way.
            names = ", ".join(sorted(ErrorCode(error).name for error in errors))
            raise ProtocolError(f"Produce with acks=0 of client {call.client_id!r} met {names}")
        return None
    await _acknowledged(broker, call, waiting, request.timeout_ms)
    told = {each.current_leader.leader_id for topic in response.responses for each in topic.partition_responses}
    if call.api_version >= LEADERS_SINCE and (moved := told - {leaders.NOBODY[0]}):
        response.node_endpoints = leaders.endpoints(broker, call, moved, ProduceResponse.NodeEndpoint)
    return response


async def _append(
    broker: BrokerContext, call: RequestContext, acks: int, topic: AskedTopic, data: Asked
) -> tuple[Partition, PartitionHandle | None, _Ack | None]:
    answer = Partition(index=data.index, base_offset=-1)
    partition = None
    if not ALL_ACKS <= acks <= 1:
        answer.error_code = ErrorCode.INVALID_REQUIRED_ACKS
    elif call.api_version >= TOPIC_IDS_SINCE:
        partition = broker.replicas.by_id(topic.topic_id, data.index)
        if partition is None:
            known = broker.image.topic_by_id(topic.topic_id) is not None
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID
    else:
        partition = broker.replicas.by_name(topic.name, data.index)
        if partition is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition is not None and partition.topic in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT_ID:
        answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return answer, None, None
    if partition is None:
        return answer, None, None
    # The append may wait for its log to be created or rolled, so not on this loop.
    done = await asyncio.get_running_loop().run_in_executor(
        broker.blocking, partition.append, data.records or b"", acks, False
    )
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
    return answer, partition, done.ack


def _hint(broker: BrokerContext, call: RequestContext, partition: PartitionHandle, answer: Partition) -> None:
    if call.api_version >= LEADERS_SINCE:
        leader = leaders.current_leader(broker, partition.topic, partition.index)
        answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader


async def _acknowledged(broker: BrokerContext, call: RequestContext, waiting: list[_Wait], timeout_ms: int) -> None:
    """Waits until every replica in sync has the records, and they are flushed where that was due, or the time is
    over."""
    deadline_ms = broker.waits.now_ms() + timeout_ms
    for partition, (kind, end), answer in waiting:
        while answer.error_code == ErrorCode.NONE and not partition.satisfies(kind, end):
            if partition.state == "failed":
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                break
            if partition.role != "leader" and kind != watch.SYNCED:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                _hint(broker, call, partition, answer)
                break
            left_ms = deadline_ms - broker.waits.now_ms()
            if left_ms <= 0 or not await broker.waits.any([(partition, kind, end)], left_ms):
                if not partition.satisfies(kind, end):
                    answer.error_code = ErrorCode.REQUEST_TIMED_OUT
                break
