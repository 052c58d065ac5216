"""Measures how fast record batches are built and read record by record, compared with aiokafka's C extension and
kafka-python.

    .venv/bin/python -m pytest benchmarks/micro/bench_record.py --benchmark-group-by=group --benchmark-columns=min,ops

Each round of every row handles 10,000 records. The groups of the output show the libraries side by side. `extra_info`
has records per second. kafka-python handles only 1,000 records, because it takes twenty times as long.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.record.validator import Validator

NOW = 1_700_000_000_000
KEY, VALUE = b"key-1234", b"x" * 100
HEADERS = [("trace", b"0123456789abcdef")]
LIMIT_BYTES = 1 << 24
RECORDS = 10_000
KAFKA_PYTHON_RECORDS = 1_000


def build_kafkacore(count: int, headers: list[tuple[str, bytes]]) -> bytes:
    builder = RecordBatchBuilder(limit_bytes=LIMIT_BYTES)
    append = builder.append
    for _ in range(count):
        append(NOW, KEY, VALUE, headers)
    return builder.build()


def build_aiokafka(count: int, headers: list[tuple[str, bytes]]) -> bytes:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=LIMIT_BYTES,
    )
    append = builder.append
    for offset in range(count):
        append(offset, NOW, KEY, VALUE, headers)
    return bytes(builder.build())


def build_kafka_python(count: int, headers: list[tuple[str, bytes]]) -> bytes:
    builder = KafkaPythonBuilder(2, 0, 0, -1, -1, -1, LIMIT_BYTES)
    append = builder.append
    for offset in range(count):
        append(offset, NOW, KEY, VALUE, headers)
    return bytes(builder.build())


def batches_of_kafkacore(data: bytes) -> Any:
    return next(Batches(data))


LIBRARIES: dict[str, tuple[Callable[..., bytes], Callable[[bytes], Any], int]] = {
    "kafkacore": (build_kafkacore, batches_of_kafkacore, RECORDS),
    "aiokafka": (build_aiokafka, AiokafkaBatch, RECORDS),
    "kafka-python": (build_kafka_python, KafkaPythonBatch, KAFKA_PYTHON_RECORDS),
}


def told(benchmark: Any, count: int) -> None:
    benchmark.extra_info["million_records_per_second"] = round(count / benchmark.stats["min"] / 1e6, 2)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("headers", [[], HEADERS], ids=["plain", "headers"])
def test_build(benchmark: Any, library: str, headers: list[tuple[str, bytes]]) -> None:
    build, _, count = LIBRARIES[library]
    benchmark.group = f"build, {'one header' if headers else 'no headers'}"
    benchmark(build, count, headers)
    told(benchmark, count)


def walk(make: Callable[[bytes], Any], data: bytes) -> None:
    for _ in make(data):
        pass


def walk_and_read(make: Callable[[bytes], Any], data: bytes) -> None:
    for record in make(data):
        record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("headers", [[], HEADERS], ids=["plain", "headers"])
@pytest.mark.parametrize("how", [walk, walk_and_read])
def test_iterate(benchmark: Any, library: str, headers: list[tuple[str, bytes]], how: Callable[..., None]) -> None:
    _, make, count = LIBRARIES[library]
    data = build_kafkacore(count, headers)
    benchmark.group = f"iterate, {how.__name__}, {'one header' if headers else 'no headers'}"
    benchmark(how, make, data)
    told(benchmark, count)


PLAIN, WITH_HEADERS = build_kafkacore(RECORDS, []), build_kafkacore(RECORDS, HEADERS)
WORKS: dict[str, Callable[[str], object]] = {
    "build": lambda library: LIBRARIES[library][0](RECORDS, []),
    "iterate": lambda library: walk(LIBRARIES[library][1], PLAIN),
    "iterate and read every field": lambda library: walk_and_read(LIBRARIES[library][1], PLAIN),
    "iterate and read every field, one header": lambda library: walk_and_read(LIBRARIES[library][1], WITH_HEADERS),
}


@pytest.mark.parametrize("work", WORKS)
def test_ratio_to_aiokafka(benchmark: Any, work: str) -> None:
    """Runs both libraries alternately, 40 times, so that other work on the machine does not change the ratio of the
    medians."""
    spent: dict[str, list[float]] = {"kafkacore": [], "aiokafka": []}
    for _ in range(40):
        for library, times in spent.items():
            start = time.thread_time()
            WORKS[work](library)
            times.append(time.thread_time() - start)
    benchmark.group = "ratio to aiokafka"
    benchmark(WORKS[work], "kafkacore")
    ratio = statistics.median(spent["aiokafka"]) / statistics.median(spent["kafkacore"])
    benchmark.extra_info["times_as_fast_as_aiokafka"] = round(ratio, 2)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("value_bytes", [100, 1000])
def test_validate(benchmark: Any, codec: str, value_bytes: int) -> None:
    """Inflates a batch of 1 MB and reads every record. Values are words in random order and compress about 3 : 1."""
    rng = random.Random(1)
    words = [rng.randbytes(4).hex().encode() for _ in range(300)]
    builder = RecordBatchBuilder(codec=codec, limit_bytes=LIMIT_BYTES)
    count = 1_000_000 // value_bytes
    for index in range(count):
        value = b" ".join(rng.choices(words, k=value_bytes // 9 + 1))[:value_bytes]
        builder.append(NOW + index, b"%08d" % index, value)
    data = builder.build()
    validator = Validator(max_message_bytes=LIMIT_BYTES)
    verdict = validator.check(data, NOW)
    assert verdict.error == 0
    benchmark.group = f"validate 1 MB of {value_bytes} B records"
    benchmark(validator.check, data, NOW)
    told(benchmark, count)
    benchmark.extra_info["inflated_gb_per_second"] = round(verdict.body_bytes / benchmark.stats["min"] / 1e9, 2)
