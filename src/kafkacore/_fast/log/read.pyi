"""Reads of a log. Native code only; Python calls `partition_handle`."""
