"""Converts a topic's configuration into the settings of its logs. The table in this module maps each field of the
native LogSettings to the topic keys that determine it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from kafkacore._fast.log.settings import LogSettings
from kafkacore.config.topic import TopicConfig

# Kafka accepts smaller values for both keys. A topic with a smaller value gets the smallest usable value instead of an
# unusable log.
MIN_SEGMENT_BYTES: Final = 14
MIN_INDEX_BYTES: Final = 24

_CODECS: Final = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_LEVELS: Final = {codec: f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}


class NativeField(NamedTuple):
    """Describes a field of LogSettings: the configuration keys behind it, its unit, and the function that computes its
    value from a topic's configuration."""

    keys: tuple[str, ...]
    unit: str
    value: Callable[[TopicConfig], Any]


def _same(key: str, unit: str) -> NativeField:
    return NativeField((key,), unit, attrgetter(key.replace(".", "_")))


def _segment_ms(config: TopicConfig) -> int:
    """Returns segment.ms, limited by max.compaction.lag.ms. Overdue records must leave the active segment, because the
    cleaner never compacts the active segment (Kafka's maxSegmentMs)."""
    return min(config.segment_ms, config.max_compaction_lag_ms) if config.compacted else config.segment_ms


def _level(config: TopicConfig) -> Any:
    key = _LEVELS.get(config.compression_type)
    return None if key is None else config.value(key)


FIELDS: Final[Mapping[str, NativeField]] = {
    "segment_bytes": NativeField(
        ("segment.bytes", "internal.segment.bytes"), "bytes", lambda c: max(c.segment_size_bytes, MIN_SEGMENT_BYTES)
    ),
    "segment_ms": NativeField(("segment.ms", "max.compaction.lag.ms", "cleanup.policy"), "ms", _segment_ms),
    "segment_jitter_ms": _same("segment.jitter.ms", "ms"),
    "index_interval_bytes": _same("index.interval.bytes", "bytes"),
    "segment_index_bytes": NativeField(
        ("segment.index.bytes",), "bytes", lambda c: max(c.segment_index_bytes, MIN_INDEX_BYTES)
    ),
    "retention_ms": _same("retention.ms", "ms"),
    "retention_bytes": _same("retention.bytes", "bytes"),
    "file_delete_delay_ms": _same("file.delete.delay.ms", "ms"),
    "flush_messages": _same("flush.messages", "records"),
    "flush_ms": _same("flush.ms", "ms"),
    "max_message_bytes": _same("max.message.bytes", "bytes"),
    "compression_type": NativeField(("compression.type",), "codec id", lambda c: _CODECS[c.compression_type]),
    "compression_level": NativeField(("compression.type", *_LEVELS.values()), "level of the codec", _level),
    "log_append_time": NativeField(
        ("message.timestamp.type",), "flag", lambda c: c.message_timestamp_type == "LogAppendTime"
    ),
    "timestamp_before_max_ms": NativeField(
        ("message.timestamp.before.max.ms",), "ms", attrgetter("message_timestamp_before_max_ms")
    ),
    "timestamp_after_max_ms": NativeField(
        ("message.timestamp.after.max.ms",), "ms", attrgetter("message_timestamp_after_max_ms")
    ),
    "delete_policy": NativeField(("cleanup.policy",), "flag", lambda c: "delete" in c.cleanup_policy),
    "compact_policy": NativeField(("cleanup.policy",), "flag", attrgetter("compacted")),
    "preallocate": _same("preallocate", "flag"),
    "producer_id_expiration_ms": NativeField(
        ("producer.id.expiration.ms",), "ms", attrgetter("broker.producer_id_expiration_ms")
    ),
    "min_cleanable_dirty_ratio": _same("min.cleanable.dirty.ratio", "share"),
    "min_compaction_lag_ms": _same("min.compaction.lag.ms", "ms"),
    "max_compaction_lag_ms": _same("max.compaction.lag.ms", "ms"),
    "delete_retention_ms": _same("delete.retention.ms", "ms"),
}


def log_settings(config: TopicConfig) -> LogSettings:
    """Converts a topic's configuration. Raises ValueError for values that no topic configuration allows."""
    return LogSettings(**{field: native.value(config) for field, native in FIELDS.items()})
