"""Appends to a log: validated without its lock, checked against producers, stamped, written and noted under it. Native only; `partition_handle` is what Python calls."""
