"""Truncates logs. Native code only; Python calls `partition_handle`."""
