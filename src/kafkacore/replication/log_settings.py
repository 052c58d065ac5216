"""What a topic's configuration means to its logs."""

from __future__ import annotations

from typing import Any, Final

from kafkacore._fast.partition_handle import LogSettings
from kafkacore.config import BrokerConfig, TopicConfig

PRODUCER: Final = -1  # keep the codec that the producer chose
CODECS: Final = {"producer": PRODUCER, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_LEVELS: Final = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}


def log_settings(broker: BrokerConfig, topic: TopicConfig) -> LogSettings:
    codec = topic.compression_type.lower()
    level: Any = getattr(topic, _LEVELS[codec]) if codec in _LEVELS else None
    return LogSettings(
        segment_bytes=topic.segment_size_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        index_interval_bytes=topic.index_interval_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        max_message_bytes=topic.max_message_bytes,
        compression_type=CODECS[codec],
        compression_level=level,
        log_append_time=topic.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        delete_policy="delete" in topic.cleanup_policy,
        compact_policy=topic.compacted,
        preallocate=topic.preallocate,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )
