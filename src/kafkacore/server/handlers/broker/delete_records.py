"""DeleteRecords: moves a partition's log start offset forward (KIP-107)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext
from kafkacore.storage.names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kafkacore._fast.log.partition_handle import Acknowledgement

NO_LOW_WATERMARK: Final = -1
AT_ONCE: Final = 64  # limit of partitions whose records are deleted at the same time

Asked = DeleteRecordsRequest.DeleteRecordsPartition
Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Partition = DeleteRecordsResponse.DeleteRecordsPartitionResult
_Cut = tuple[PartitionHandle, int, Partition]  # the log, the offset, and the result to fill in
# The log, the acknowledgement that the replicas must give, and the result to fill in.
_Wait = tuple[PartitionHandle, "Acknowledgement", Partition]


async def handle(broker: BrokerContext, call: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    slice_ = Slice()
    cuts: list[_Cut] = []
    waiting: list[_Wait] = []
    for topic in request.topics:
        shown = Topic(name=topic.name)
        for asked in topic.partitions:
            await slice_.give_way()
            shown.partitions.append(_looked_up(broker, topic.name, asked, cuts))
            if len(cuts) == AT_ONCE:
                await _cut(broker, cuts, waiting)
        response.topics.append(shown)
    await _cut(broker, cuts, waiting)
    await _deleted(broker, waiting, request.timeout_ms)
    return response


def _looked_up(broker: BrokerContext, topic: str, asked: Asked, cuts: list[_Cut]) -> Partition:
    """Returns the partition's result. If the partition is refused, the result is complete. Otherwise this function adds
    an entry to `cuts`, and `_cut` fills the result in later."""
    partition, error = broker.replicas.locate(broker.image, topic, asked.partition_index, -1)
    answer = Partition(partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error)
    if topic in INTERNAL_TOPICS:
        answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif partition is not None and "delete" not in broker.topic_config(topic).cleanup_policy:
        answer.error_code = ErrorCode.POLICY_VIOLATION
    elif partition is not None:
        cuts.append((partition, asked.offset, answer))
    return answer


async def _cut(broker: BrokerContext, cuts: list[_Cut], waiting: list[_Wait]) -> None:
    loop = asyncio.get_running_loop()
    done = await asyncio.gather(
        *(loop.run_in_executor(broker.blocking, partition.delete_records, offset) for partition, offset, _ in cuts)
    )
    for (partition, _, answer), (error, low_watermark, replicated) in zip(cuts, done, strict=True):
        answer.error_code = error
        answer.low_watermark = low_watermark if error == ErrorCode.NONE else NO_LOW_WATERMARK
        if replicated is not None:
            waiting.append((partition, replicated, answer))
    cuts.clear()


async def _deleted(broker: BrokerContext, waiting: list[_Wait], timeout_ms: int) -> None:
    """Waits until all live replicas have deleted the records, so that no future leader has them."""
    deadline_ms = broker.waits.now_ms() + timeout_ms
    slice_ = Slice()
    for partition, replicated, answer in waiting:
        await slice_.give_way()
        while (error := partition.acknowledged(*replicated)) is None:
            left_ms = deadline_ms - broker.waits.now_ms()
            if left_ms <= 0 or not await broker.waits.any([(partition, *replicated)], left_ms, "DeleteRecords"):
                error = partition.acknowledged(*replicated)
                error = ErrorCode.REQUEST_TIMED_OUT if error is None else error
                break
        answer.error_code = error
        answer.low_watermark = partition.low_watermark if error == ErrorCode.NONE else NO_LOW_WATERMARK
