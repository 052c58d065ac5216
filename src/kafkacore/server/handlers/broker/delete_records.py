"""DeleteRecords: the log begins later from now on (KIP-107)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from kafkacore.server.context import BrokerContext
from kafkacore.storage.names import INTERNAL_TOPICS

NO_LOW_WATERMARK: Final = -1

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Partition = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(broker: BrokerContext, call: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = await asyncio.gather(*(_delete(broker, topic.name, each) for each in topic.partitions))
        response.topics.append(Topic(name=topic.name, partitions=list(results)))
    return response


async def _delete(broker: BrokerContext, topic: str, asked: Any) -> Partition:
    partition, error = broker.replicas.locate(broker.image, topic, asked.partition_index, -1)
    low_watermark = NO_LOW_WATERMARK
    if topic in INTERNAL_TOPICS:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif partition is not None and "delete" not in broker.topic_config(topic).cleanup_policy:
        error = ErrorCode.POLICY_VIOLATION
    elif partition is not None:
        loop = asyncio.get_running_loop()
        code, low_watermark = await loop.run_in_executor(broker.blocking, partition.delete_records, asked.offset)
        error = ErrorCode(code)
    return Partition(
        partition_index=asked.partition_index,
        low_watermark=low_watermark if error == ErrorCode.NONE else NO_LOW_WATERMARK,
        error_code=error,
    )
