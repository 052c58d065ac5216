"""Aborted transactions in a range of offsets. Native code only; Python calls `partition_handle`."""
