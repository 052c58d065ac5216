"""Reads of a log. Native only; `partition_handle` is what Python calls."""
