"""Batches that the MemoryRecordsBuilder of Apache Kafka 4.3.1 has written: one for each codec, with a single record
that has a key, a value and a header."""

from __future__ import annotations

import pytest

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.record.validator import Validator

NOW = 1_700_000_000_000
GOLDEN = {
    "none": (
        b"value 985 some words here",
        (
            "00000000000000000000005affffffff02940682d60000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
            "0000000150000000086b6579303276616c75652039383520736f6d6520776f7264732068657265020268047830"
        ),
    ),
    "gzip": (
        b"value 378 some words here",
        (
            "00000000000000000000006effffffff029dbd1dc90001000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
            "000000011f8b08000000000000ff0b606060e0c84ead34302a4bcc294d553036b75028cecf4d5528cf2f4a2956c8482d4a6562ca60a93000"
            "008087390d29000000"
        ),
    ),
    "snappy": (
        b"value 558 some words here",
        (
            "000000000000000000000070ffffffff02db891eea0002000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
            "0000000182534e415050590000000001000000010000002b29a050000000086b6579303276616c75652035353820736f6d6520776f726473"
            "2068657265020268047830"
        ),
    ),
    "lz4": (
        b"value 383 some words here",
        (
            "000000000000000000000069ffffffff028b45efc50003000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
            "0000000104224d186040822900008050000000086b6579303276616c75652033383320736f6d6520776f7264732068657265020268047830"
            "00000000"
        ),
    ),
    "zstd": (
        b"value 858 some words here",
        (
            "000000000000000000000066ffffffff02b9ba7d530004000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
            "0000000128b52ffd005848010050000000086b6579303276616c75652038353820736f6d6520776f7264732068657265020268047830010000"
        ),
    ),
}


@pytest.mark.parametrize("codec", GOLDEN)
def test_batch_of_kafka_is_read_as_it_was_written(codec: str) -> None:
    value, data = GOLDEN[codec][0], bytes.fromhex(GOLDEN[codec][1])
    assert Validator().check(data, NOW).error == 0
    (batch,) = Batches(data)
    assert batch.crc_ok and batch.codec_name == codec
    (record,) = batch
    assert (record.timestamp, record.key, record.value) == (NOW, b"key0", value)
    assert record.headers == [("h", b"x0")]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_incompressible_batch_equals_the_batch_of_kafka(codec: str) -> None:
    value, data = GOLDEN[codec][0], bytes.fromhex(GOLDEN[codec][1])
    builder = RecordBatchBuilder(codec=codec)
    builder.append(NOW, b"key0", value, [("h", b"x0")])
    assert builder.build() == data
