"""Deletion of old records. Native only; Python calls `partition_handle`."""
