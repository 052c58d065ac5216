"""The queue of partitions whose ISR may have to change; `partition_edges` is what Python calls."""
