"""The rules of LogValidator: which batches a leader accepts, the error codes for the others, and the bytes that the
leader stores."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka.record._crecords import LegacyRecordBatchBuilder

from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.codec.compression import Codec
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.record.validator import Validator, Verdict, follow

NOW = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CODEC_IDS = {name: number for number, name in enumerate(CODECS)}
CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_TXN_STATE = 2, 10, 32, 48
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 76, 87
# Positions of fields in a batch header.
LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, BASE_TIME, MAX_TIME = 8, 12, 16, 17, 21, 23, 27, 35
PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 43, 51, 53, 57
VALUE = b"the quick brown fox jumps over the lazy dog " * 5


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(index: int, key: bytes | None = b"key", time_delta: int = 0) -> bytes:
    body = b"\0" + varint(time_delta) + varint(index) + sized(key) + sized(VALUE) + b"\0"
    return varint(len(body)) + body


def batch_of(body: bytes, count: int, codec: str = "none") -> bytes:
    """Returns a batch that contains `body`, without checking it."""
    stored = body if codec == "none" else Codec().deflate(codec, body)
    header = struct.pack(
        ">qiibIhiqqqhii", 0, 49 + len(stored), -1, 2, 0, CODEC_IDS[codec], count - 1, NOW, NOW, -1, -1, -1, count
    )
    return sealed(bytearray(header + stored))


def sealed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, CRC, checksum(data[ATTRIBUTES:]))
    return bytes(data)


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return sealed(changed)


def counted(data: bytes, count: int) -> bytes:
    return patched(patched(data, COUNT, ">i", count), LAST_DELTA, ">i", count - 1)


def good(codec: str = "none", count: int = 3) -> bytes:
    return batch_of(b"".join(record(i) for i in range(count)), count, codec)


def check(data: bytes, **rules: object) -> Verdict:
    return Validator(**rules).check(data, NOW)  # type: ignore[arg-type]


def assert_refused(data: bytes, error: int, **rules: object) -> Verdict:
    verdict = check(data, **rules)
    assert verdict.error == error, verdict
    assert verdict.message
    assert verdict.data is None
    return verdict


# --- accepted batches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3, 5000])
def test_sound_batch_is_stored_unchanged(codec: str, count: int) -> None:
    data = good(codec, count)
    verdict = Validator(leader_epoch=6, max_message_bytes=1 << 24).accept(data, NOW, base_offset=2**40)
    assert (verdict.error, verdict.message, verdict.record_errors) == (0, None, ())
    assert verdict.record_count == count
    assert (verdict.max_timestamp, verdict.max_timestamp_index) == (NOW, 0)
    assert verdict.body_bytes == sum(len(record(i)) for i in range(count))
    assert not verdict.rewritten
    assert verdict.data is not None
    stamped = struct.pack(">q", 2**40) + data[8:12] + struct.pack(">i", 6) + data[16:]
    assert verdict.data == stamped, "only the offset and the leader epoch may change"


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_maximum_timestamp_is_corrected(codec: str) -> None:
    body = record(0, time_delta=-9) + record(1, time_delta=4) + record(2, time_delta=4)
    data = patched(batch_of(body, 3, codec), MAX_TIME, ">q", 12345)
    verdict = Validator().accept(data, NOW, 0)
    assert (verdict.error, verdict.max_timestamp, verdict.max_timestamp_index) == (0, NOW + 4, 1)
    (batch,) = Batches(verdict.data or b"")
    assert batch.crc_ok and batch.max_timestamp == NOW + 4


def test_unknown_attribute_bits_are_cleared_only_when_the_batch_is_stamped() -> None:
    data = patched(good(), ATTRIBUTES, ">H", 0xFF80)
    kept, stamped = Validator().accept(data, NOW, 0), Validator(log_append_time=True).accept(data, NOW, 0)
    assert (kept.error, stamped.error) == (0, 0)
    assert (kept.data or b"")[ATTRIBUTES : ATTRIBUTES + 2] == b"\xff\x80"
    assert (stamped.data or b"")[ATTRIBUTES : ATTRIBUTES + 2] == b"\x00\x08"


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_stamps_the_batch(codec: str) -> None:
    verdict = Validator(log_append_time=True).accept(good(codec), NOW + 77, 10)
    assert (verdict.error, verdict.max_timestamp, verdict.log_append_time_ms) == (0, NOW + 77, NOW + 77)
    assert verdict.max_timestamp_index == 2
    (batch,) = Batches(verdict.data or b"")
    assert batch.crc_ok and batch.timestamp_type == 1
    assert [r.timestamp for r in batch] == [NOW + 77] * 3


def test_log_append_time_ignores_the_timestamp_bounds() -> None:
    assert check(batch_of(record(0, time_delta=10**12), 1), log_append_time=True, timestamp_after_max_ms=0).error == 0


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batch_gets_the_compression_type_of_the_topic(source: str, target: str) -> None:
    data = patched(good(source, 50), PRODUCER_ID, ">q", 77)
    data = patched(patched(data, PRODUCER_EPOCH, ">h", 2), SEQUENCE, ">i", 5)
    verdict = Validator(compression=target, leader_epoch=3).accept(data, NOW, 1000)
    name = "none" if target == "uncompressed" else target
    assert (verdict.error, verdict.rewritten) == (0, source != name)
    (batch,) = Batches(verdict.data or b"")
    assert batch.crc_ok and batch.codec_name == name
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (1000, 1049, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 2, 5)
    assert [(r.offset, r.key, r.value) for r in batch] == [(1000 + i, b"key", VALUE) for i in range(50)]


@pytest.mark.parametrize("target", CODECS[1:])
def test_incompressible_body_fits_in_its_new_codec(target: str) -> None:
    for size in (0, 1, 1000, 40_000, 700_000):
        builder = RecordBatchBuilder()
        builder.append(NOW, b"k", random.Random(size).randbytes(size))
        verdict = Validator(compression=target, max_message_bytes=1 << 20).accept(builder.build(), NOW, 0)
        assert (verdict.error, verdict.rewritten) == (0, True)


def test_batch_is_refused_when_it_grows_too_large_in_its_new_codec() -> None:
    data = good("zstd", 200)
    verdict = Validator(compression="uncompressed", max_message_bytes=len(data) + 10).accept(data, NOW, 0)
    assert (verdict.error, verdict.data) == (MESSAGE_TOO_LARGE, None)
    assert Validator(max_message_bytes=len(data)).accept(data, NOW, 0).error == 0


# --- the batch -----------------------------------------------------------------------------------------------------

FRAMES: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "nothing": (lambda d: d[:0], INVALID_RECORD),
    "a piece of a header": (lambda d: d[:40], INVALID_RECORD),
    "cut off": (lambda d: d[:-1], INVALID_RECORD),
    "a length beyond what is there": (lambda d: patched(d, LENGTH, ">i", len(d)), INVALID_RECORD),
    "a length too short": (lambda d: patched(d, LENGTH, ">i", len(d) - 13), INVALID_RECORD),
    "an impossible length": (lambda d: patched(d, LENGTH, ">i", 13), CORRUPT_MESSAGE),
    "a negative length": (lambda d: patched(d, LENGTH, ">i", -1), CORRUPT_MESSAGE),
    "a length less than a header": (lambda d: patched(d, LENGTH, ">i", 40), CORRUPT_MESSAGE),
    "an unknown magic": (lambda d: patched(d, MAGIC, ">b", 3), CORRUPT_MESSAGE),
    "two batches": (lambda d: d + d, INVALID_RECORD),
    "bytes after the batch": (lambda d: d + b"\0", INVALID_RECORD),
    "part of a batch after the batch": (lambda d: d + d[:-1], INVALID_RECORD),
    "nonsense after the batch": (lambda d: d + b"\xff" * 20, CORRUPT_MESSAGE),
    "a wrong checksum": (lambda d: d[:-1] + bytes([d[-1] ^ 1]), CORRUPT_MESSAGE),
    "a wrong checksum field": (lambda d: d[:CRC] + b"\0\0\0\0" + d[CRC + 4 :], CORRUPT_MESSAGE),
    "an unknown codec": (lambda d: patched(d, ATTRIBUTES, ">h", 5), UNSUPPORTED_COMPRESSION_TYPE),
    "another base offset": (lambda d: patched(d, 0, ">q", 1), INVALID_RECORD),
    "a negative base offset": (lambda d: patched(d, 0, ">q", -1), INVALID_RECORD),
    "a control batch": (lambda d: patched(d, ATTRIBUTES, ">h", d[22] | 0x20), INVALID_RECORD),
    "log append time": (lambda d: patched(d, ATTRIBUTES, ">h", d[22] | 0x08), INVALID_TIMESTAMP),
    "a producer id without sequence": (lambda d: patched(d, PRODUCER_ID, ">q", 5), INVALID_RECORD),
    "a transaction without producer": (lambda d: patched(d, ATTRIBUTES, ">h", d[22] | 0x10), INVALID_RECORD),
    "no records": (lambda d: counted(d, 0), INVALID_RECORD),
    "a count of 0": (lambda d: patched(d, COUNT, ">i", 0), INVALID_RECORD),
    "a negative count": (lambda d: patched(d, COUNT, ">i", -3), INVALID_RECORD),
    "a count without its offsets": (lambda d: patched(d, COUNT, ">i", 4), INVALID_RECORD),
    "offsets without their count": (lambda d: patched(d, LAST_DELTA, ">i", 3), INVALID_RECORD),
    "a huge count": (lambda d: counted(d, 2**31 - 1), INVALID_RECORD),
    "one record too few": (lambda d: counted(d, 4), INVALID_RECORD),
    "one record too many": (lambda d: counted(d, 2), INVALID_RECORD),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", FRAMES)
def test_bad_batches_are_refused(codec: str, name: str) -> None:
    change, error = FRAMES[name]
    assert_refused(change(good(codec)), error)


def test_old_magic_is_refused_on_produce() -> None:
    for magic in (0, 1):
        builder = LegacyRecordBatchBuilder(magic, 0, 1 << 16)
        builder.append(0, NOW, b"k", b"v")
        assert_refused(bytes(builder.build()), INVALID_RECORD)


def test_batch_above_the_limit_is_refused() -> None:
    data = good()
    assert check(data, max_message_bytes=len(data)).error == 0
    assert_refused(data, MESSAGE_TOO_LARGE, max_message_bytes=len(data) - 1)
    broken = data[:-1] + b"?"
    # The size is checked before the checksum.
    assert_refused(broken, MESSAGE_TOO_LARGE, max_message_bytes=len(data) - 1)


def test_zstd_needs_produce_7() -> None:
    assert_refused(good("zstd"), UNSUPPORTED_COMPRESSION_TYPE, zstd_allowed=False)
    assert check(good("lz4"), zstd_allowed=False).error == 0


def test_transactional_batch_needs_a_transaction() -> None:
    builder = RecordBatchBuilder(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    builder.append(NOW, b"k", b"v")
    data = builder.build()
    assert_refused(data, INVALID_TXN_STATE)
    assert check(data, transactional_allowed=True).error == 0


def test_coordinator_writes_control_batches_uncompressed() -> None:
    builder = RecordBatchBuilder(control=True, transactional=True, producer_id=5, producer_epoch=0)
    builder.append(NOW, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3))
    data = builder.build()
    assert_refused(data, INVALID_RECORD)
    verdict = Validator(origin="coordinator", compression="zstd").accept(data, NOW, 9)
    assert (verdict.error, verdict.rewritten) == (0, False)
    (batch,) = Batches(verdict.data or b"")
    assert batch.is_control and batch.base_offset == 9 and batch.crc_ok


def test_raft_leader_batch_must_carry_its_own_epoch() -> None:
    data = patched(good(), EPOCH, ">i", 4)
    assert check(data, origin="raft", leader_epoch=4).error == 0
    assert_refused(data, INVALID_RECORD, origin="raft", leader_epoch=5)


# --- records -------------------------------------------------------------------------------------------------------

FIELDS = bytes([0]) + varint(0) + varint(1)  # attributes, timestamp delta, and offset delta of the second record
MALFORMED = {
    "a varint that does not end": b"\x80" * 5 + b"\x01",
    "a varint with more than 32 bits": b"\xff\xff\xff\xff\x7f",
    "a size of -1": varint(-1),
    "a size of 0": varint(0),
    "a size beyond the batch": varint(1 << 20) + FIELDS,
    "a size too small for its fields": varint(3) + FIELDS + sized(b"k") + sized(b"v") + b"\0",
    "a size too large for its fields": varint(9) + FIELDS + sized(b"k") + sized(b"v") + b"\0\0",
    "a time delta that does not end": varint(14) + b"\0" + b"\x80" * 10 + b"\0\0\0",
    "a key beyond the record": varint(7) + FIELDS + varint(50) + b"v\0\0",
    "a key of size -2": varint(6) + FIELDS + varint(-2) + varint(-1) + b"\0",
    "a value beyond the record": varint(7) + FIELDS + varint(-1) + varint(50) + b"v\0",
    "a value of size -2": varint(6) + FIELDS + varint(-1) + varint(-2) + b"\0",
    "no header count": varint(5) + FIELDS + varint(-1) + varint(-1),
    "a negative header count": varint(6) + FIELDS + varint(-1) + varint(-1) + varint(-1),
    "more headers than bytes": varint(8) + FIELDS + varint(-1) + varint(-1) + varint(2) + b"\0\0",
    "a header without name": varint(8) + FIELDS + varint(-1) + varint(-1) + varint(1) + varint(-1) + b"\0",
    "a header value of size -2": varint(8) + FIELDS + varint(-1) + varint(-1) + varint(1) + b"\0" + varint(-2),
    "a header value beyond the record": varint(8) + FIELDS + varint(-1) + varint(-1) + varint(1) + b"\0" + varint(9),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("padding", [0, 131072])  # the second record spans two chunks of the decompressed body
def test_malformed_records_are_refused(codec: str, name: str, padding: int) -> None:
    first = bytes([0]) + varint(0) + varint(0) + sized(b"k") + sized(bytes(padding)) + b"\0"
    first = varint(len(first)) + first
    if padding:  # the next record begins one byte before the end of the chunk
        surplus = len(first) - 131071
        first = bytes([0]) + varint(0) + varint(0) + sized(b"k") + sized(bytes(padding - surplus)) + b"\0"
        first = varint(len(first)) + first
        assert len(first) == 131071
    verdict = assert_refused(batch_of(first + MALFORMED[name] + record(2), 3, codec), INVALID_RECORD)
    assert verdict.record_errors == ()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value_bytes", [100_000, 131_000, 131_072, 300_000])
def test_records_across_chunks_are_read(codec: str, value_bytes: int) -> None:
    builder = RecordBatchBuilder(codec=codec, limit_bytes=1 << 24)
    for i in range(9):
        name = "h" * (i * 17)
        headers = [(name, b"x" * 70000), ("n", None)]
        assert builder.append(NOW + i, b"k" * (i * 31), bytes([i]) * (value_bytes + i), headers)
    verdict = check(builder.build(), max_message_bytes=1 << 24)
    assert (verdict.error, verdict.max_timestamp, verdict.max_timestamp_index) == (0, NOW + 8, 8)


@pytest.mark.parametrize("codec", CODECS)
def test_batch_is_refused_when_an_offset_delta_is_not_its_index(codec: str) -> None:
    for wrong in (2, 0, -1, 2**31 - 1):
        verdict = assert_refused(batch_of(record(0) + record(wrong) + record(2), 3, codec), INVALID_RECORD)
        assert [index for index, _ in verdict.record_errors] == [1]
        assert "offset delta" in verdict.record_errors[0][1]


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_topics_need_keys(codec: str) -> None:
    data = batch_of(record(0) + record(1, key=None) + record(2, key=b"") + record(3, key=None), 4, codec)
    assert check(data).error == 0
    verdict = assert_refused(data, INVALID_RECORD, compacted=True)
    assert [index for index, _ in verdict.record_errors] == [1, 3]
    assert "key" in verdict.record_errors[0][1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("delta", "taken"),
    [(0, True), (-1000, True), (-1001, False), (500, True), (501, False), (-NOW, False), (-NOW - 1, True)],
)
def test_timestamps_out_of_bounds_are_refused(codec: str, delta: int, taken: bool) -> None:
    data = batch_of(record(0) + record(1, time_delta=delta), 2, codec)
    rules = {"timestamp_before_max_ms": 1000, "timestamp_after_max_ms": 500}
    if taken:  # -1 means that there is no timestamp, and is accepted
        assert check(data, **rules).error == 0
        return
    verdict = assert_refused(data, INVALID_TIMESTAMP, **rules)
    assert [index for index, _ in verdict.record_errors] == [1]


def test_timestamp_bounds_hold_at_the_ends_of_64_bits() -> None:
    far = 2**63 - 1
    for delta in (2**63 - 1 - NOW, -(2**63), 2**63 - 1):
        data = batch_of(record(0, time_delta=delta), 1)
        assert_refused(data, INVALID_TIMESTAMP, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    assert check(good(), timestamp_before_max_ms=far, timestamp_after_max_ms=far).error == 0


def test_one_wrong_timestamp_decides_the_error_of_the_batch() -> None:
    body = record(0, key=None) + record(1, time_delta=10**12) + record(2, key=None, time_delta=10**12)
    verdict = assert_refused(batch_of(body, 3), INVALID_TIMESTAMP, compacted=True)
    about = [(index, message.split()[-1]) for index, message in verdict.record_errors]
    assert about == [(0, "key."), (1, "bounds."), (2, "key.")]


def test_record_errors_are_counted_up_to_a_limit() -> None:
    body = b"".join(record(i, key=None) for i in range(100)) + record(100, time_delta=10**12)
    verdict = assert_refused(batch_of(body, 101), INVALID_TIMESTAMP, compacted=True)
    assert [index for index, _ in verdict.record_errors] == list(range(16))


# --- bodies that inflate too much, or cannot be inflated --------------------------------------------------------------


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_decompression_bombs_are_refused(codec: str) -> None:
    body = bytes([0]) + varint(0) + varint(0) + sized(b"k") + sized(bytes(32 << 20)) + b"\0"
    data = batch_of(varint(len(body)) + body, 1, codec)
    assert len(data) < 1 << 20
    assert check(data).error == (0 if codec == "lz4" else MESSAGE_TOO_LARGE), "lz4 cannot exceed 255 : 1"
    assert_refused(data, MESSAGE_TOO_LARGE, codec=Codec(max_bytes=1 << 20))
    assert_refused(data, MESSAGE_TOO_LARGE, codec=Codec(max_ratio=20, ratio_floor_bytes=1 << 20))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_bodies_that_do_not_inflate_are_refused(codec: str) -> None:
    data = good(codec, 50)
    for body in (b"", b"nonsense", data[61:-3], data[61:] + b"\0\0\0\0\0"):
        changed = bytearray(data[:61] + body)
        struct.pack_into(">i", changed, LENGTH, len(changed) - 12)
        assert_refused(sealed(changed), INVALID_RECORD)
    for other in CODECS[1:]:
        if other != codec:
            assert_refused(patched(data, ATTRIBUTES, ">h", CODEC_IDS[other]), INVALID_RECORD)


def test_validators_work_on_many_threads_at_once() -> None:
    batches = {codec: good(codec, 2000) for codec in CODECS}
    broken = {codec: batches[codec][:61] + batches[codec][61:-9] + bytes(9) for codec in CODECS}
    start = threading.Barrier(8)

    def run(number: int) -> set[int]:
        validator = Validator(max_message_bytes=1 << 24, compression=["producer", *CODECS[1:]][number % 5])
        start.wait()
        seen = set()
        for _ in range(10):
            for codec in CODECS:
                seen.add(validator.accept(batches[codec], NOW, 0).error)
                seen.add(validator.check(sealed(bytearray(broken[codec])), NOW).error)
        return seen

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [{0, INVALID_RECORD}] * 8


# --- batches that a follower appends --------------------------------------------------------------------------------


def replicated(base_offset: int, epoch: int, codec: str = "none") -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=epoch, codec=codec)
    for i in range(5):
        builder.append(NOW + base_offset, b"k", b"v%d" % i)
    return builder.build()


def test_follower_accepts_whole_batches() -> None:
    data = replicated(100, 1) + replicated(105, 2, "lz4") + replicated(110, 2)
    followed = follow(data, leader_epoch=2)
    assert followed == (0, None, 3, len(data), 100, 114, NOW + 110, 2)
    assert follow(data[:-1], 2)[:4] == (0, None, 2, len(data) - len(replicated(110, 2)))
    assert follow(b"", 2)[:6] == (0, None, 0, 0, -1, -1)


def test_follower_stops_before_a_higher_epoch() -> None:
    data = replicated(100, 1) + replicated(105, 3)
    followed = follow(data, leader_epoch=2)
    assert (followed.error, followed.batch_count, followed.last_offset) == (0, 1, 104)


def test_follower_refuses_corrupt_batches() -> None:
    first, second = replicated(100, 1), replicated(105, 1)
    for changed in (first + second[:-1] + b"?", first + second[:16] + b"\x05" + second[17:], first + first):
        followed = follow(changed, leader_epoch=1)
        assert (followed.error, followed.batch_count) == (CORRUPT_MESSAGE, 1)
        assert followed.message
