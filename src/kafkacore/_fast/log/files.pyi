"""The small files in a log's directory. Native code only; Python calls `partition_handle`."""
