"""Damaged record batches. The test changes single bytes of a batch. Directly after the batch lies an unreadable page of
memory, so a read beyond the batch's end kills the process.

KAFKACORE_FUZZ_SECONDS (3) limits the time. KAFKACORE_SEED repeats a run, and a failure prints the seed.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import random
import time
from collections.abc import Iterator

import pytest

from broken_batches import CODECS, NOW, broken, sound_batches
from kafkacore._fast.codec.compression import Codec, CodecError
from kafkacore._fast.codec.context import live_contexts
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError, live_objects
from kafkacore._fast.record.validator import Validator, follow
from seeds import SEED

SECONDS = float(os.environ.get("KAFKACORE_FUZZ_SECONDS", "3"))
LIMIT_BYTES = 1 << 20
ANSWERS = {0, 2, 10, 32, 48, 76, 87}


class Fence:
    """Memory that ends at an unreadable page. A read beyond its end kills the process."""

    def __init__(self, size_bytes: int) -> None:
        pages = -(-size_bytes // mmap.PAGESIZE) + 1
        self.map = mmap.mmap(-1, pages * mmap.PAGESIZE)
        self.end = (pages - 1) * mmap.PAGESIZE
        anchor = ctypes.c_char.from_buffer(self.map)
        address = ctypes.addressof(anchor)
        del anchor
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(address + self.end), mmap.PAGESIZE, 0) == 0
        self.protect = lambda prot: libc.mprotect(ctypes.c_void_p(address + self.end), mmap.PAGESIZE, prot)

    def hold(self, data: bytes) -> memoryview:
        start = self.end - len(data)
        self.map[start : self.end] = data
        return memoryview(self.map)[start : self.end]


@pytest.fixture
def fence() -> Iterator[Fence]:
    made = Fence(1 << 18)
    yield made
    made.protect(mmap.PROT_READ | mmap.PROT_WRITE)


def read_all(data: memoryview, codec: Codec) -> None:
    try:
        for batch in Batches(data, codec):
            assert batch.crc_ok in (True, False)
            if batch.magic == 2:
                batch.find_timestamp(NOW + 2)
                batch.find_max_timestamp()
                for record in batch:
                    assert repr(record).startswith("Record(")
                    assert isinstance(record.headers, list)
    except (CorruptBatchError, InvalidRecordError, CodecError):
        pass


def inflate(name: str, body: memoryview, codec: Codec) -> int:
    try:
        return len(codec.inflate(name, body))
    except CodecError:
        return 0


def test_broken_batches_are_refused_without_reading_beyond_them(fence: Fence) -> None:
    gc.collect()
    before = live_objects(), live_contexts()
    rng = random.Random(SEED)
    codec = Codec(max_bytes=LIMIT_BYTES, max_ratio=200, ratio_floor_bytes=LIMIT_BYTES // 4)
    validators = [
        Validator(codec=codec, compacted=True, timestamp_before_max_ms=10**6),
        Validator(codec=codec, origin="coordinator", compression="lz4"),
        Validator(codec=codec, log_append_time=True, compression="uncompressed", transactional_allowed=True),
    ]
    inputs = sound_batches()
    answers: dict[int, int] = {}
    rounds = 0
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        data = fence.hold(broken(rng, rng.choice(inputs)))
        note = f"KAFKACORE_SEED={SEED}, round {rounds}"
        for validator in validators:
            verdict = validator.check(data, NOW)
            assert verdict.error in ANSWERS, (note, verdict)
            assert verdict.body_bytes <= LIMIT_BYTES, note
            answers[verdict.error] = answers.get(verdict.error, 0) + 1
            if verdict.error == 0:
                stored = validator.accept(data, NOW, rounds)
                assert stored.error in (0, 10), (note, stored)
                assert all(batch.crc_ok for batch in Batches(stored.data or b"")), note
        assert follow(data, 5).error in (0, 2), note
        read_all(data, codec)
        for name in CODECS[1:]:
            assert inflate(name, data[min(61, len(data)) :], codec) <= LIMIT_BYTES, note
        data.release()
        rounds += 1
    assert rounds > 100
    assert {0, 2, 87} <= set(answers), f"the mutations cause too few kinds of answers: {answers}"
    del codec, validators, validator
    gc.collect()
    assert (live_objects(), live_contexts()) == before
