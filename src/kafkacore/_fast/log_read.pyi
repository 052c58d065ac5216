"""Reads of a log: where the batches of a fetch lie, and offsets by time. Native only; `partition_handle` is what Python calls."""
