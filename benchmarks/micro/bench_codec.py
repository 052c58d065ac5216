"""Benchmarks of the four codecs in Kafka's framings, compared with cramjam, which aiokafka calls while it holds the
GIL.

.venv/bin/python -m pytest benchmarks/micro/bench_codec.py --benchmark-group-by=group --benchmark-columns=min,median
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import codec as aiokafka_codec

from kafkacore._fast.codec.compression import Codec

RNG = random.Random(1)
BODY = b"".join(b'{"user":%d,"action":"click","at":%d}\n' % (RNG.randrange(5000), 10**9 + i) for i in range(24_000))
OURS = Codec()
ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": aiokafka_codec.gzip_encode,
    "snappy": aiokafka_codec.snappy_encode,
    "lz4": aiokafka_codec.lz4_encode,
    "zstd": aiokafka_codec.zstd_encode,
}
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": aiokafka_codec.gzip_decode,
    "snappy": aiokafka_codec.snappy_decode,
    "lz4": aiokafka_codec.lz4_decode,
    "zstd": aiokafka_codec.zstd_decode,
}


def told(benchmark: Any) -> None:
    benchmark.extra_info["inflated_mb_per_second"] = round(len(BODY) / benchmark.stats["min"] / 1e6)


@pytest.mark.parametrize("library", ["kafkacore", "aiokafka"])
@pytest.mark.parametrize("codec", ENCODERS)
def test_inflate(benchmark: Any, codec: str, library: str) -> None:
    packed = OURS.deflate(codec, BODY)
    benchmark.group = f"inflate {codec}"
    if library == "kafkacore":
        assert benchmark(OURS.inflate, codec, packed) == BODY
    else:
        assert benchmark(DECODERS[codec], packed) == BODY
    told(benchmark)


@pytest.mark.parametrize("library", ["kafkacore", "aiokafka"])
@pytest.mark.parametrize("codec", ENCODERS)
def test_deflate(benchmark: Any, codec: str, library: str) -> None:
    benchmark.group = f"deflate {codec}"
    packed = benchmark(OURS.deflate, codec, BODY) if library == "kafkacore" else benchmark(ENCODERS[codec], BODY)
    benchmark.extra_info["ratio"] = round(len(BODY) / len(packed), 2)
    told(benchmark)
