"""Turns the configuration of a topic into the settings of its logs."""

from __future__ import annotations

from typing import Final

from kafkacore._fast.log.settings import LogSettings
from kafkacore.config.topic import TopicConfig

# Kafka accepts smaller values of both. Such a topic gets the smallest that works, rather than an unusable log.
MIN_SEGMENT_BYTES: Final = 14
MIN_INDEX_BYTES: Final = 24

_CODECS: Final = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def log_settings(config: TopicConfig) -> LogSettings:
    """Raises ValueError for values that no topic configuration allows."""
    codec = config.compression_type
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    compacts = "compact" in config.cleanup_policy
    # Overdue records must leave the active segment, which is never compacted (Kafka's maxSegmentMs).
    segment_ms = min(config.segment_ms, config.max_compaction_lag_ms) if compacts else config.segment_ms
    return LogSettings(
        segment_bytes=max(config.segment_size_bytes, MIN_SEGMENT_BYTES),
        segment_ms=segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=max(config.segment_index_bytes, MIN_INDEX_BYTES),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        file_delete_delay_ms=config.file_delete_delay_ms,
        flush_messages=config.flush_messages,
        flush_ms=config.flush_ms,
        max_message_bytes=config.max_message_bytes,
        compression_type=_CODECS[codec],
        compression_level=levels.get(codec),
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        delete_policy="delete" in config.cleanup_policy,
        compact_policy=compacts,
        preallocate=config.preallocate,
        producer_id_expiration_ms=config.broker.producer_id_expiration_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
    )
