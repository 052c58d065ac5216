"""A topic's configuration in the form that its logs use. All logs of the topic share one `LogConfig`, which native code
reads.
"""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport LogConfig


cdef class LogSettings:
    """The settings of a topic's logs; immutable."""
    cdef LogConfig *config
    # The log cleaner uses the fields below. Its scheduling is written in Python.
    cdef readonly double min_cleanable_dirty_ratio
    cdef readonly int64_t min_compaction_lag_ms
    cdef readonly int64_t max_compaction_lag_ms
    cdef readonly int64_t delete_retention_ms
