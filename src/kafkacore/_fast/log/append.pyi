"""Appends to a log. Native code only; Python calls `partition_handle`."""
