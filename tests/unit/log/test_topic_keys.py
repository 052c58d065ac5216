"""The effect of each topic key on a log. A test sets the key for the topic or for the broker. A broker's key can have
another name and another unit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.record.batch import Batch, Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.keys import BROKER
from kafkacore.storage.log_settings import log_settings

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87
SOUND = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}
# This text compresses better at a higher compression level.
TEXT = b" ".join(random.Random(7).choices([b"%d" % n for n in range(2000)], k=20_000))

Make = Callable[..., PartitionHandle]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Make]:
    """Makes a log. `log(compression_type="gzip")` sets the key for the topic. If the name is a broker's key, sets it
    for the broker.
    """
    directory = LogDirectory(Environment(clock), str(tmp_path))
    made: list[PartitionHandle] = []

    def make(**properties: object) -> PartitionHandle:
        keys = {name.replace("_", "."): str(value) for name, value in properties.items()}
        at_broker = {
            name: text for name, text in keys.items() if name.startswith("log.") or name == "message.max.bytes"
        }
        assert all(name in BROKER for name in at_broker)
        broker = BrokerConfig(SOUND | at_broker)
        config = TopicConfig.validate(broker, {name: text for name, text in keys.items() if name not in at_broker})
        made.append(PartitionHandle(directory, "t", len(made), Uuid.random(), log_settings(config)))
        made[-1].become_leader(1, 0)
        return made[-1]

    yield make
    for each in made:
        each.close()
    directory.close()


def batch(value: bytes = b"v", timestamp: int = NOW, key: bytes | None = b"k") -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp, key, value)
    return builder.build()


def stored(handle: PartitionHandle) -> list[Batch]:
    return list(Batches(handle.read(0, 1 << 24).records))


def size_of_text(handle: PartitionHandle) -> int:
    assert handle.append(batch(TEXT)).error == 0
    return handle.size_bytes


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"])
def test_compression_type_sets_the_codec_of_stored_batches(log: Make, codec: str) -> None:
    handle = log(compression_type=codec)
    handle.append(batch(TEXT))
    (found,) = stored(handle)
    assert found.codec_name == {"uncompressed": "none", "producer": "none"}.get(codec, codec)
    assert next(iter(found)).value == TEXT


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_is_stored_when_only_its_records_without_a_codec_fill_the_segment(log: Make, codec: str) -> None:
    value = bytes((1 << 20) - 200)
    handle = log(compression_type=codec, segment_bytes=1 << 20)
    builder = RecordBatchBuilder(codec="lz4" if codec == "gzip" else "gzip")
    builder.append(NOW, b"k", value)
    assert handle.append(builder.build()).error == 0
    (found,) = stored(handle)
    assert found.codec_name == codec
    assert next(iter(found)).value == value


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -50, 3)])
def test_compression_level_changes_the_size_of_stored_batches(log: Make, codec: str, low: int, high: int) -> None:
    sizes = [
        size_of_text(log(**{"compression_type": codec, f"compression_{codec}_level": level})) for level in (low, high)
    ]
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("key", ["message_timestamp_type", "log_message_timestamp_type"])
def test_log_append_time_stamps_the_time_of_the_broker(log: Make, key: str) -> None:
    handle = log(**{key: "LogAppendTime"})
    assert handle.append(batch(timestamp=5)).log_append_time_ms == NOW
    assert stored(handle)[0].max_timestamp == NOW


@pytest.mark.parametrize("prefix", ["", "log_"])
@pytest.mark.parametrize(
    ("key", "sign"), [("message_timestamp_before_max_ms", -1), ("message_timestamp_after_max_ms", 1)]
)
def test_append_is_refused_when_its_timestamp_is_out_of_bounds(log: Make, prefix: str, key: str, sign: int) -> None:
    handle = log(**{prefix + key: 1000})
    assert handle.append(batch(timestamp=NOW + sign * 1000)).error == 0
    assert handle.append(batch(timestamp=NOW + sign * 1001)).error == INVALID_TIMESTAMP


@pytest.mark.parametrize("key", ["max_message_bytes", "message_max_bytes"])
def test_append_is_refused_when_its_batch_is_too_large(log: Make, key: str) -> None:
    size = len(batch(b"v" * 100))
    assert log(**{key: size}).append(batch(b"v" * 100)).error == 0
    assert log(**{key: size - 1}).append(batch(b"v" * 100)).error == MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "keys",
    [
        {"segment_bytes": 1 << 20},
        {"log_segment_bytes": 1 << 20},
        {"segment_bytes": 1 << 30, "internal_segment_bytes": 1 << 20},
    ],
)
def test_segment_ends_by_size(log: Make, keys: dict[str, int]) -> None:
    handle = log(**keys)
    for _ in range(2):
        handle.append(batch(bytes(600_000)))
    assert len(handle.segments()) == 2


@pytest.mark.parametrize(("key", "value"), [("segment_ms", HOUR_MS), ("log_roll_ms", HOUR_MS), ("log_roll_hours", 1)])
def test_segment_ends_by_time(log: Make, key: str, value: int) -> None:
    handle = log(**{key: value})
    for timestamp in (NOW - 2 * HOUR_MS, NOW - HOUR_MS, NOW - HOUR_MS + 1):
        handle.append(batch(timestamp=timestamp))
    assert [each.base_offset for each in handle.segments()] == [0, 2]


@pytest.mark.parametrize("key", ["segment_jitter_ms", "log_roll_jitter_ms"])
def test_segment_jitter_spreads_the_ends_of_segments(log: Make, key: str) -> None:
    def ends(handle: PartitionHandle) -> bool:
        for timestamp in (NOW - HOUR_MS, NOW - HOUR_MS // 2):
            handle.append(batch(timestamp=timestamp))
        return len(handle.segments()) == 2

    assert not ends(log(segment_ms=HOUR_MS))
    # With full jitter, about half of the segments roll within half of the time.
    assert {ends(log(**{"segment_ms": HOUR_MS, key: HOUR_MS})) for _ in range(64)} == {True, False}


def three_segments(handle: PartitionHandle) -> PartitionHandle:
    for hours in (30, 20, 0):
        handle.append(batch(b"v" * 100, timestamp=NOW - hours * HOUR_MS))
    assert len(handle.segments()) == 3
    return handle


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention_ms", 25 * HOUR_MS),
        ("log_retention_ms", 25 * HOUR_MS),
        ("log_retention_minutes", 25 * 60),
        ("log_retention_hours", 25),
        ("retention_bytes", 250),
        ("log_retention_bytes", 250),
    ],
)
def test_retention_deletes_old_segments(log: Make, key: str, value: int) -> None:
    assert three_segments(log(segment_ms=1, retention_ms=-1)).delete_old_segments() == 0
    keys: dict[str, object] = {"segment_ms": 1, key: value}
    assert three_segments(log(**keys)).delete_old_segments() == 1


@pytest.mark.parametrize("key", ["cleanup_policy", "log_cleanup_policy"])
def test_compacted_log_has_no_retention_and_refuses_records_without_a_key(log: Make, key: str) -> None:
    handle = three_segments(log(**{key: "compact", "segment_ms": 1, "retention_ms": 1}))
    assert handle.delete_old_segments() == 0
    assert handle.append(batch(key=None)).error == INVALID_RECORD


@pytest.mark.parametrize("key", ["flush_messages", "log_flush_interval_messages"])
def test_flush_messages_syncs_records_before_they_are_acknowledged(log: Make, key: str) -> None:
    handle = log(**{key: 1})
    handle.append(batch(), acks=-1)
    assert handle.synced_offset == 1
    lazy = log()
    lazy.append(batch(), acks=-1)
    assert lazy.synced_offset == 0


@pytest.mark.parametrize("key", ["flush_ms", "log_flush_interval_ms", "log_flush_scheduler_interval_ms"])
def test_flush_ms_sets_the_greatest_age_of_unsynced_bytes(log: Make, key: str) -> None:
    assert log(**{key: 1234}).settings.flush_ms == 1234


@pytest.mark.parametrize("key", ["file_delete_delay_ms", "log_segment_delete_delay_ms"])
def test_file_delete_delay_sets_how_long_a_deleted_log_stays(log: Make, key: str) -> None:
    assert log(**{key: 1234}).settings.file_delete_delay_ms == 1234


@pytest.mark.parametrize("key", ["index_interval_bytes", "log_index_interval_bytes"])
def test_index_interval_sets_the_distance_between_index_entries(log: Make, tmp_path: Path, key: str) -> None:
    for handle, entries in ((log(**{key: 0}), 9), (log(), 0)):
        for _ in range(10):
            handle.append(batch())
        handle.flush()
        handle.shut()
        (index,) = (tmp_path / f"t-{handle.index}").glob("*0.index")
        assert index.stat().st_size == 8 * entries


@pytest.mark.parametrize("key", ["segment_index_bytes", "log_index_size_max_bytes"])
@pytest.mark.parametrize("size", [4, 40])
def test_segment_ends_when_its_index_is_full(log: Make, key: str, size: int) -> None:
    handle = log(**{key: size, "index_interval_bytes": 0})
    for _ in range(40):
        assert handle.append(batch()).error == 0
    assert len(handle.segments()) > 2


@pytest.mark.parametrize("key", ["preallocate", "log_preallocate"])
def test_preallocate_takes_the_room_of_a_segment_in_advance(log: Make, tmp_path: Path, key: str) -> None:
    handle = log(**{key: "true", "internal_segment_bytes": 8192})
    handle.append(batch())
    (file,) = (tmp_path / "t-0").glob("*.log")
    assert file.stat().st_size == 8192


@pytest.mark.parametrize("size", ["-5", "0", "13"])
def test_append_is_refused_when_no_batch_fits_into_a_segment(log: Make, size: str) -> None:
    assert log(internal_segment_bytes=size).append(batch()).error != 0
