"""The roles of partitions. Native code only; Python calls `partition_handle`."""
