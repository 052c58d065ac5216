"""Implements settings.pxd: a topic's log configuration for Python callers."""

from libc.stdint cimport int8_t, int32_t, int64_t

from kafkacore._fast.log.log cimport LogConfig, config_new, config_release


cdef class LogSettings:
    """A topic's configuration in the form that its logs use. Names and units are as in Kafka. -1 means "no limit" for
    the settings for which it means this in Kafka.

    `compression_type` is a codec id, or -1 for `producer`. If `compression_level` is None, the codec's default level is
    used. Raises ValueError.
    """

    def __cinit__(
        self, *, int64_t segment_bytes=1073741824, int64_t segment_ms=604800000, int64_t segment_jitter_ms=0,
        int32_t index_interval_bytes=4096, int32_t segment_index_bytes=10485760, int64_t retention_ms=604800000,
        int64_t retention_bytes=-1, int64_t file_delete_delay_ms=60000, int64_t flush_messages=0x7FFFFFFFFFFFFFFF,
        int64_t flush_ms=0x7FFFFFFFFFFFFFFF, int32_t max_message_bytes=1048588, int compression_type=-1,
        compression_level=None, bint log_append_time=False, int64_t timestamp_before_max_ms=0x7FFFFFFFFFFFFFFF,
        int64_t timestamp_after_max_ms=3600000, bint delete_policy=True, bint compact_policy=False,
        bint preallocate=False, int32_t producer_id_expiration_ms=86400000, double min_cleanable_dirty_ratio=0.5,
        int64_t min_compaction_lag_ms=0, int64_t max_compaction_lag_ms=0x7FFFFFFFFFFFFFFF,
        int64_t delete_retention_ms=86400000,
    ):
        cdef LogConfig *config = config_new()
        if config == NULL:
            raise MemoryError
        self.config = config
        if not 14 <= segment_bytes <= 0x7FFFFFFF or segment_index_bytes < 24 or index_interval_bytes < 0:
            raise ValueError("segment.bytes must be 14 to 2147483647, segment.index.bytes at least 24, "
                             "index.interval.bytes not negative")
        if segment_ms < 1 or segment_jitter_ms < 0 or flush_messages < 1 or flush_ms < 0 or max_message_bytes < 0:
            raise ValueError("segment.ms and flush.messages must be at least 1, segment.jitter.ms, flush.ms and "
                             "max.message.bytes at least 0")
        if not 0 <= min_cleanable_dirty_ratio <= 1 or min_compaction_lag_ms < 0 or max_compaction_lag_ms < 1 or (
                delete_retention_ms < 0):
            raise ValueError("min.cleanable.dirty.ratio must be 0 to 1, min.compaction.lag.ms and "
                             "delete.retention.ms at least 0, max.compaction.lag.ms at least 1")
        config.segment_bytes = segment_bytes
        config.segment_ms = segment_ms
        config.segment_jitter_ms = segment_jitter_ms
        config.index_interval_bytes = index_interval_bytes
        config.segment_index_bytes = segment_index_bytes
        config.retention_ms = retention_ms
        config.retention_bytes = retention_bytes
        config.file_delete_delay_ms = file_delete_delay_ms
        config.flush_messages = flush_messages
        config.flush_ms = flush_ms
        config.delete_policy = delete_policy
        config.compact_policy = compact_policy
        config.preallocate = preallocate
        config.producer_id_expiration_ms = producer_id_expiration_ms
        config.rules.max_message_bytes = max_message_bytes
        config.rules.target_codec = <int8_t> compression_type
        if compression_level is not None:
            config.rules.target_level = compression_level
        config.rules.timestamp_type = 1 if log_append_time else 0
        config.rules.timestamp_before_max_ms = timestamp_before_max_ms
        config.rules.timestamp_after_max_ms = timestamp_after_max_ms
        config.rules.compacted = compact_policy
        self.min_cleanable_dirty_ratio = min_cleanable_dirty_ratio
        self.min_compaction_lag_ms = min_compaction_lag_ms
        self.max_compaction_lag_ms = max_compaction_lag_ms
        self.delete_retention_ms = delete_retention_ms

    def __dealloc__(self):
        config_release(self.config)

    @property
    def flush_ms(self):
        return self.config.flush_ms

    @property
    def file_delete_delay_ms(self):
        return self.config.file_delete_delay_ms

    @property
    def segment_ms(self):
        return self.config.segment_ms

    @property
    def delete_policy(self):
        return bool(self.config.delete_policy)

    @property
    def compact_policy(self):
        return bool(self.config.compact_policy)
