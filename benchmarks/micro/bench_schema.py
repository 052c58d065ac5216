"""Measures how fast messages are read and written with the message tables. Compares the three forms of a decoded
message.

    .venv/bin/python -m pytest benchmarks/micro/bench_schema.py --benchmark-group-by=group --benchmark-columns=min,ops

`extra_info` has nanoseconds for each message or partition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkacore._fast.schema.columns import RowCodec
from kafkacore._fast.schema.wire import BINDINGS
from kafkacore.protocol import apis
from kafkacore.protocol.messages import (
    ApiVersionsRequest,
    FetchRequest,
    MetadataResponse,
    PartitionRecord,
    ProduceRequest,
)
from kafkacore.protocol.uuid import Uuid

TIMES = 10_000
PARTITIONS = 10_000
METADATA_VERSION = 13
TOPIC_ID = Uuid(bytes(range(16)))

PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[
        ProduceRequest.TopicProduceData(
            name="topic",
            topic_id=TOPIC_ID,
            partition_data=[ProduceRequest.PartitionProduceData(index=3, records=b"r" * 200)],
        )
    ],
)
FETCH = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    session_id=7,
    session_epoch=9,
    topics=[
        FetchRequest.FetchTopic(
            topic="topic",
            topic_id=TOPIC_ID,
            partitions=[FetchRequest.FetchPartition(partition=3, fetch_offset=1_000, partition_max_bytes=1 << 20)],
        )
    ],
)


def partition_columns() -> dict[str, Any]:
    replicas = np.arange(3 * PARTITIONS, dtype=np.int32).reshape(PARTITIONS, 3) % 9
    isr = replicas.copy()
    isr[::3, 2] = -1
    return {"replicas": replicas, "isr": isr, "leader": replicas[:, 0].copy()}


def note(benchmark: Any, count: int) -> None:
    benchmark.extra_info["ns"] = round(benchmark.stats.stats.min / count * 1e9, 1)


@pytest.mark.parametrize("message", [PRODUCE, FETCH], ids=lambda each: each.NAME)
def test_view(benchmark: Any, message: Any) -> None:
    benchmark.group = f"read {message.NAME}"
    data, binding = message.encode(13), BINDINGS[message.NAME]
    benchmark(binding.read_times, data, 13, TIMES)
    note(benchmark, TIMES)


@pytest.mark.parametrize("message", [PRODUCE, FETCH], ids=lambda each: each.NAME)
def test_object(benchmark: Any, message: Any) -> None:
    benchmark.group = f"read {message.NAME}"
    data, decode = message.encode(13), type(message).decode

    def read() -> None:
        for _ in range(TIMES):
            decode(data, 13)

    benchmark(read)
    note(benchmark, TIMES)


def test_header(benchmark: Any) -> None:
    benchmark.group = "read a request's header"
    frame = apis.encode_request(3, 1, "client", ApiVersionsRequest())

    def read() -> None:
        for _ in range(TIMES):
            apis.decode_request_header(frame)

    benchmark(read)
    note(benchmark, TIMES)


def test_metadata_from_columns(benchmark: Any) -> None:
    benchmark.group = f"write Metadata of {PARTITIONS} partitions"
    columns = partition_columns()
    codec = RowCodec("MetadataResponse", METADATA_VERSION, "MetadataResponsePartition")

    def write() -> bytes:
        partitions = codec.encode_array(
            {
                "partition_index": np.arange(PARTITIONS, dtype=np.int32),
                "leader_id": columns["leader"],
                "leader_epoch": 5,
                "replica_nodes": columns["replicas"],
                "isr_nodes": columns["isr"],
            }
        )
        topic = MetadataResponse.MetadataResponseTopic(name="topic", topic_id=TOPIC_ID, partitions=partitions)
        return MetadataResponse(topics=[topic]).encode(METADATA_VERSION)

    benchmark(write)
    note(benchmark, PARTITIONS)


def test_metadata_from_objects(benchmark: Any) -> None:
    benchmark.group = f"write Metadata of {PARTITIONS} partitions"
    partitions = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=i, leader_id=1, leader_epoch=5, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for i in range(PARTITIONS)
    ]
    topic = MetadataResponse.MetadataResponseTopic(name="topic", topic_id=TOPIC_ID, partitions=partitions)
    response = MetadataResponse(topics=[topic])
    benchmark(response.encode, METADATA_VERSION)
    note(benchmark, PARTITIONS)


def test_partition_records_to_bytes(benchmark: Any) -> None:
    benchmark.group = "partition records"
    columns = partition_columns() | {"partition_id": np.arange(PARTITIONS), "topic_id": bytes(TOPIC_ID)}
    benchmark(RowCodec("PartitionRecord", 2).encode, columns)
    note(benchmark, PARTITIONS)


def test_partition_records_from_bytes(benchmark: Any) -> None:
    benchmark.group = "partition records"
    codec = RowCodec("PartitionRecord", 2)
    columns = partition_columns() | {"partition_id": np.arange(PARTITIONS, dtype=np.int32)}
    data, ends = codec.encode(columns)
    ends_of = np.frombuffer(ends, np.int64)
    starts = np.concatenate([[0], ends_of[:-1]])
    out = {name: np.zeros_like(column) for name, column in columns.items()}
    benchmark(codec.decode, data, starts, ends_of, out)
    note(benchmark, PARTITIONS)
    assert PartitionRecord.decode(data[: ends[0]], 2).replicas == out["replicas"][0].tolist()
