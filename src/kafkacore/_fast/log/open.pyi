"""Opens logs for appends. Native code only; Python calls `partition_handle`."""
