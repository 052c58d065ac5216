"""Truncation of logs. Native only; Python calls `partition_handle`."""
