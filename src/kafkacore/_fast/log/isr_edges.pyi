"""The queue of partitions whose ISR may have to change. Native code only; Python calls `partition_edges`."""
