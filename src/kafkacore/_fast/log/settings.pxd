"""A topic's configuration as its logs use it: what native code asks for stands in a counted struct that they share."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport LogConfig


cdef class LogSettings:
    """What a topic's configuration means to its log: immutable."""
    cdef LogConfig *config
    # What the log cleaner, which is Python's, decides by.
    cdef readonly double min_cleanable_dirty_ratio
    cdef readonly int64_t min_compaction_lag_ms
    cdef readonly int64_t max_compaction_lag_ms
    cdef readonly int64_t delete_retention_ms
