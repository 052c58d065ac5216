"""The followers of a partition. Native code only; Python calls `partition_handle`."""
