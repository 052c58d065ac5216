"""Aborted transactions of a range. Native only; `partition_handle` is what Python calls."""
