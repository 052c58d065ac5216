"""One connection to a broker, for tests that send requests as message objects and get decoded responses."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Self

from kafkacore._fast.record.batch import Batches
from kafkacore.protocol import apis
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from processes import PATIENCE, wait_until
from wire import receive


class Dialogue:
    """A connection to a broker. Its methods raise ConnectionError if the broker closes the connection, and TimeoutError
    if the broker does not answer in time."""

    def __init__(self, address: str, timeout_s: float = 20.0) -> None:
        host, port = address.rsplit(":", 1)
        self._connection = socket.create_connection((host, int(port)), timeout=timeout_s * PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def hang_up(self) -> None:
        """Closes the connection. Any thread may call this. A call that waits for a response then raises
        ConnectionError."""
        with contextlib.suppress(OSError):  # the broker has already closed the connection
            self._connection.shutdown(socket.SHUT_RDWR)

    def ask(self, request: Any, version: int) -> Any:
        body = apis.encode_request(version, 1, "dialogue", request)
        self._connection.sendall(struct.pack(">i", len(body)) + body)
        _, payload = receive(self._connection)
        skipped = len(apis.response_header(request.API_KEY, version, 1)) - 4
        return apis.response_class(request.API_KEY).decode(payload[skipped:], version)

    # --- frequent requests ---

    def create(self, topic: str, partitions: int = 1, **configs: str) -> m.Message:
        """Creates a topic and returns its result. Raises AssertionError if the topic was not created."""
        asked = m.CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )  # fmt: skip
        (made,) = self.ask(m.CreateTopicsRequest(topics=[asked], timeout_ms=10_000), 7).topics
        assert made.error_code == 0, (topic, made.error_code, made.error_message)
        return made

    def delete(self, topic: str) -> None:
        (gone,) = self.ask(m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4).responses
        assert gone.error_code == 0, (topic, gone.error_code)

    def topics(self) -> dict[str, tuple[Any, int]]:
        """Returns the id and the number of partitions of each topic, by topic name."""
        found = self.ask(m.MetadataRequest(topics=None), 12).topics
        return {each.name: (each.topic_id, len(each.partitions)) for each in found}

    def produce(self, topic: str, records: bytes, partition: int = 0, acks: int = -1) -> tuple[int, int]:
        """Sends a Produce request. Returns the error code and the base offset."""
        part = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
        data = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
        answer = self.ask(m.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data), 9)
        (told,) = answer.responses[0].partition_responses
        return told.error_code, told.base_offset

    def producer_id(self) -> int:
        answer = self.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 2)
        assert answer.error_code == 0, answer.error_code
        told: int = answer.producer_id
        return told

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
        """Sends a DeleteRecords request. Returns the error code and the low watermark."""
        request = m.DeleteRecordsRequest
        part = request.DeleteRecordsPartition(partition_index=partition, offset=offset)
        asked = request(topics=[request.DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000)
        (told,) = self.ask(asked, 2).topics[0].partitions
        return told.error_code, told.low_watermark

    def offset(self, topic: str, timestamp: int, partition: int = 0) -> int:
        """Returns the offset for the timestamp -1 (latest) or -2 (earliest). Repeats the request while the answer is
        OFFSET_NOT_AVAILABLE, which a new leader returns until its high watermark has reached its epoch (KIP-207).
        Raises AssertionError for any other error."""
        request = m.ListOffsetsRequest
        part = request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=-1)
        asked = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic, partitions=[part])])
        told: Any = None

        def is_told() -> bool:
            nonlocal told
            (told,) = self.ask(asked, 5).topics[0].partitions
            return bool(told.error_code != ErrorCode.OFFSET_NOT_AVAILABLE)

        wait_until(is_told, what=f"the end of {topic}")
        assert told.error_code == 0, (topic, told.error_code)
        found: int = told.offset
        return found

    def fetch(self, topic: str, offset: int, partition: int = 0, max_bytes: int = 1 << 20) -> tuple[int, bytes]:
        """Sends a Fetch request. Returns the error code and the bytes of the records."""
        request = m.FetchRequest
        part = request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        asked = request(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=max_bytes,
            topics=[request.FetchTopic(topic=topic, partitions=[part])],
        )  # fmt: skip
        (told,) = self.ask(asked, 11).responses[0].partitions
        return told.error_code, told.records or b""

    def records(self, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
        """Returns (offset, value) of every record from the log's start to its end. Asserts that the checksum of each
        batch is correct."""
        offset, end = self.offset(topic, -2, partition), self.offset(topic, -1, partition)
        found: list[tuple[int, bytes]] = []
        while offset < end:
            error, data = self.fetch(topic, offset, partition)
            assert error == 0, (topic, offset, error)
            assert data, (topic, offset, end, "no records below the end of the log")
            for batch in Batches(data):
                assert batch.crc_ok, (topic, batch.base_offset)
                found += [(record.offset, record.value or b"") for record in batch if record.offset >= offset]
                offset = batch.next_offset
        return found
