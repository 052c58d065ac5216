"""Our validation of batches compared with Apache Kafka's LogValidator, for valid and broken batches. Each side also
validates batches that the other side has written."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import cramjam
import pytest

import brokers
from broken_batches import CODECS, HEADER_BYTES, NOW, broken, broken_within, sound_batches
from brokers import need_jars
from kafkacore._fast.codec.compression import Codec
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.record.validator import Validator
from seeds import SEED

pytestmark = pytest.mark.peer("apache-4.3")

RELEASE = "4.3.1"
JUDGE = Path(__file__).parent / "java" / "BatchJudge.java"
CASES = int(os.environ.get("KAFKACORE_JUDGE_CASES", "4000"))
UNKNOWN_SERVER_ERROR, NONE, CORRUPT_MESSAGE, INVALID_TIMESTAMP = -1, 0, 2, 32
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 76, 87

# The allowed differences, as (their result, our result), and their reasons. We never accept a batch that Apache Kafka
# refuses.
DIFFERENCES = {
    (UNKNOWN_SERVER_ERROR, INVALID_RECORD): "a body that does not inflate, a varint that does not end",
    (UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE): "a codec that nobody knows",
    (UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE): "that codec, and an impossible length, too",
    (UNKNOWN_SERVER_ERROR, INVALID_TIMESTAMP): "log append time, and a body that does not inflate, too",
    (NONE, INVALID_RECORD): "a wrong offset delta, a record's size that is not its own, bytes after the frame or batch",
    (NONE, INVALID_TIMESTAMP): "log append time set by the producer",
    (CORRUPT_MESSAGE, INVALID_RECORD): "a length that is too short, seen by what is left over before the checksum",
    (INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE): "several faults, asked in another order",
    (INVALID_RECORD, CORRUPT_MESSAGE): "several faults, asked in another order",
    (INVALID_RECORD, INVALID_TIMESTAMP): "several faults, asked in another order",
    (INVALID_TIMESTAMP, INVALID_RECORD): "several faults, asked in another order",
}


def java(*args: object) -> str:
    need_jars(RELEASE)
    command = [*brokers.java(RELEASE, "256m"), str(JUDGE), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def cases(rng: random.Random) -> list[tuple[int, bytes]]:
    codec, sound = Codec(), sound_batches()
    found = [(rules, data) for data in sound for rules in range(4)]
    while len(found) < CASES:
        data = rng.choice(sound)
        data = broken(rng, data) if rng.random() < 0.5 else broken_within(rng, data, codec)
        found.append((rng.randrange(4), data))
    return found


def another_zstd_refuses(data: bytes) -> bool:
    """Returns whether cramjam's libzstd refuses records that the libzstd of this machine can inflate. cramjam contains
    version 1.5.6, as does zstd-jni, which Apache Kafka uses.

    Versions before 1.5.5 accept a block of sequences that ends at a wrong position. Our node uses the libzstd of its
    machine.
    """
    if CODECS[data[22] & 7] != "zstd":
        return False
    try:
        cramjam.zstd.decompress(data[HEADER_BYTES:])
    except cramjam.DecompressionError:
        return True
    return False


def test_batch_is_refused_when_log_validator_refuses_it_and_else_stored_alike(tmp_path: Path) -> None:
    judged = cases(random.Random(SEED))
    (tmp_path / "in").write_bytes(b"".join(struct.pack(">iB", len(data), rules) + data for rules, data in judged))
    java("judge", tmp_path / "in", tmp_path / "out")
    answers = (tmp_path / "out").read_text().splitlines()
    assert len(answers) == len(judged)
    validators = [
        Validator(
            compacted=bool(rules & 1),
            log_append_time=bool(rules & 2),
            timestamp_before_max_ms=1000,
            timestamp_after_max_ms=1000,
            leader_epoch=5,
            transactional_allowed=True,
        )
        for rules in range(4)
    ]
    seen: Counter[tuple[int, int]] = Counter()
    for number, ((rules, data), answer) in enumerate(zip(judged, answers, strict=True)):
        note = f"KAFKACORE_SEED={SEED}, case {number}, rules {rules}: Apache Kafka says {answer!r}"
        ours = validators[rules].accept(data, NOW, 100)
        theirs = int(answer.split()[0])
        if ours.error == 0 and theirs == UNKNOWN_SERVER_ERROR and another_zstd_refuses(data):
            continue
        seen[theirs, ours.error] += 1
        assert theirs == ours.error or (theirs, ours.error) in DIFFERENCES, f"{note}, we {ours}"
        assert theirs == 0 or ours.error != 0, f"{note}: Apache Kafka refuses the batch, but we accept it"
        if ours.error == 0:
            assert answer == f"0 {ours.max_timestamp} {zlib.crc32(ours.data or b'')}", note
    assert seen[0, 0] >= CASES // 20, seen
    assert seen[INVALID_RECORD, INVALID_RECORD] and seen[CORRUPT_MESSAGE, CORRUPT_MESSAGE], seen


def test_batches_pass_both_ways(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    java("build", theirs)
    expected = {}
    for path in theirs.iterdir():
        data = path.read_bytes()
        codec, count = path.name.split("-")
        assert Validator().check(data, NOW).error == 0, path.name
        (batch,) = Batches(data)
        assert batch.crc_ok and batch.codec_name == codec
        builder = RecordBatchBuilder(codec=codec)
        crc = 0
        for index, record in enumerate(batch):
            assert (record.offset, record.timestamp) == (index, NOW + index)
            assert (record.key, record.value) == (b"key%d" % index, b"a value %d" % (index % 97))
            assert record.headers == [("header", b"h%d" % index)]
            builder.append(record.timestamp, record.key, record.value, record.headers)
            for part in (record.key, record.value, b"header", b"h%d" % index):
                crc = zlib.crc32(part, crc)
        built = builder.build()
        if codec in ("none", "lz4") and count == "1":  # an incompressible body has the same framing on both sides
            assert built == data
        (ours / path.name).write_bytes(built)
        expected[path.name] = f"{count} {crc}"
    assert len(expected) == 3 * len(CODECS)
    told = dict(line.split(" ", 1) for line in java("read", *ours.iterdir()).splitlines())
    assert told == expected
