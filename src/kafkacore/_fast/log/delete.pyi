"""Deletes old records. Native code only; Python calls `partition_handle`."""
