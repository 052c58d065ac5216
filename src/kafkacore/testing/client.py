"""Sends the few requests that a test without its own client needs: produces one record, or consumes some records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from kafkacore._fast.record.batch import Batch, Batches, RecordBatchBuilder
from kafkacore.network.client import NodeClient
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import CreateTopicsRequest, FetchRequest, Message, MetadataRequest, ProduceRequest
from kafkacore.testing.logs import LogRecord
from kafkacore.testing.lookup import as_bytes, as_text

CLIENT_ID: Final = "kafkacore.testing"
# The last versions in which requests name topics. Later versions use topic ids.
_PRODUCE: Final = 12
_FETCH: Final = 12
_ALL_ACKS: Final = -1
_TIMEOUT_MS: Final = 30_000
_LOOK_MS: Final = 500
_SERVED_SECONDS: Final = 0.005  # between two checks whether a new topic is available
_MAX_BYTES: Final = 16 << 20
_MOST_BATCH_BYTES: Final = 1 << 30  # the topic decides which batches are too large


class Asked(Protocol):
    """A connection to a node, such as `network.client.NodeClient`."""

    async def request(self, request: Message, version: int | None = None) -> Any: ...

    async def close(self) -> None: ...


class Client:
    """A client of one broker. Use and close it on the same loop."""

    def __init__(self, node: Asked) -> None:
        self._node = node

    @classmethod
    def of(cls, host: str, port: int) -> Client:
        """Returns a client with its own connection."""
        return cls(NodeClient(host, port, CLIENT_ID))

    async def close(self) -> None:
        await self._node.close()

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, object]) -> None:
        """Creates a topic and waits until the broker serves it. Raises KafkaError."""
        given = [
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=as_text(value)) for key, value in configs.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, configs=given
        )
        response = await self._node.request(CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))
        told = response.topics[0]
        if told.error_code:
            raise error_for(ErrorCode(told.error_code), told.error_message)
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        while True:
            served = await self._node.request(asked)
            if not served.topics[0].error_code:
                return
            await asyncio.sleep(_SERVED_SECONDS)

    async def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int = 0,
        headers: Mapping[str, bytes | str | None] | None = None,
        timestamp_ms: int,
    ) -> int:
        batch = RecordBatchBuilder(limit_bytes=_MOST_BATCH_BYTES)
        given = [(name, as_bytes(each)) for name, each in (headers or {}).items()]
        batch.append(timestamp_ms, as_bytes(key), as_bytes(value), given)
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch.build())
        asked = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        request = ProduceRequest(acks=_ALL_ACKS, timeout_ms=_TIMEOUT_MS, topic_data=[asked])
        response = await self._node.request(request, _PRODUCE)
        told = response.responses[0].partition_responses[0]
        if told.error_code:
            raise _error(told.error_code, f"{topic}-{partition}", told.error_message)
        offset: int = told.base_offset
        return offset

    async def consume(
        self, topic: str, partition: int, offset: int, count: int, timeout_seconds: float
    ) -> list[LogRecord]:
        found: list[LogRecord] = []
        try:
            async with asyncio.timeout(timeout_seconds):
                position = offset
                while len(found) < count:
                    for batch in await self._fetch(topic, partition, position):
                        found += _records_from(batch, position)
                        position = batch.next_offset
        except TimeoutError:
            raise TimeoutError(
                f"{len(found)} of {count} records of {topic}-{partition} from offset {offset} arrived within "
                f"{timeout_seconds:g} s"
            ) from None
        return found[:count]

    async def _fetch(self, topic: str, partition: int, offset: int) -> list[Batch]:
        asked = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=_LOOK_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[asked])],
        )
        response: Any = await self._node.request(request, _FETCH)
        if response.error_code:
            raise error_for(ErrorCode(response.error_code))
        told = response.responses[0].partitions[0]
        if told.error_code:
            raise _error(told.error_code, f"{topic}-{partition} from offset {offset}")
        return list(Batches(told.records or b""))


def _records_from(batch: Batch, offset: int) -> list[LogRecord]:
    """Returns the records from this offset. Transaction markers are no records."""
    if batch.is_control:
        return []
    return [
        LogRecord(each.offset, each.timestamp, each.key, each.value, each.headers)
        for each in batch
        if each.offset >= offset
    ]


def _error(code: int, place: str, message: str | None = None) -> KafkaError:
    """Returns an error whose message also names the topic or partition."""
    return error_for(code, f"{place}: {message or ErrorCode(code).message}")
