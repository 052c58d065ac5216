"""A topic's log configuration for Python callers."""

class LogSettings:
    """A topic's configuration in the form that its logs use. Names and units are as in Kafka. -1 means "no limit" for
    the settings for which it means this in Kafka.

    `compression_type` is a codec id, or -1 for `producer`. If `compression_level` is None, the codec's default level is
    used. Raises ValueError.
    """

    def __init__(
        self,
        *,
        segment_bytes: int = ...,
        segment_ms: int = ...,
        segment_jitter_ms: int = ...,
        index_interval_bytes: int = ...,
        segment_index_bytes: int = ...,
        retention_ms: int = ...,
        retention_bytes: int = ...,
        file_delete_delay_ms: int = ...,
        flush_messages: int = ...,
        flush_ms: int = ...,
        max_message_bytes: int = ...,
        compression_type: int = ...,
        compression_level: int | None = ...,
        log_append_time: bool = ...,
        timestamp_before_max_ms: int = ...,
        timestamp_after_max_ms: int = ...,
        delete_policy: bool = ...,
        compact_policy: bool = ...,
        preallocate: bool = ...,
        producer_id_expiration_ms: int = ...,
        min_cleanable_dirty_ratio: float = ...,
        min_compaction_lag_ms: int = ...,
        max_compaction_lag_ms: int = ...,
        delete_retention_ms: int = ...,
    ) -> None: ...
    @property
    def flush_ms(self) -> int: ...
    @property
    def file_delete_delay_ms(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def delete_policy(self) -> bool: ...
    @property
    def compact_policy(self) -> bool: ...
    @property
    def min_cleanable_dirty_ratio(self) -> float: ...
    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...
    @property
    def delete_retention_ms(self) -> int: ...
