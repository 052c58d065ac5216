"""Compares kafkacore's implementations of CRC-32C with those in Python clients, and its implementations of gzip's
CRC-32 with zlib's. Measures only the implementations that this processor can run.

.venv/bin/python -m pytest benchmarks/micro/bench_crc.py --benchmark-group-by=group --benchmark-columns=min,median
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record._crecords import crc32c_cython

from kafkacore._fast.base.crc32c import implementations

WAYS: dict[str, Callable[..., int]] = {f"kafkacore {name}": way for name, way in implementations().items()}
WAYS["aiokafka"] = crc32c_cython
WAYS |= {f"kafkacore CRC-32 {name}": way for name, way in implementations(ieee=True).items()}
WAYS["zlib CRC-32"] = zlib.crc32


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("size_bytes", [100, 1_000, 16_384, 1_048_576])
def test_checksum(benchmark: Any, name: str, size_bytes: int) -> None:
    data = random.Random(1).randbytes(size_bytes)
    benchmark.group = f"{size_bytes} bytes"
    benchmark(WAYS[name], data)
    benchmark.extra_info["gb_per_second"] = round(size_bytes / benchmark.stats["min"] / 1e9, 2)
