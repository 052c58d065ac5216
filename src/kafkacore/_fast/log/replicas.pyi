"""The followers of a partition; `partition_handle` is what Python calls."""
