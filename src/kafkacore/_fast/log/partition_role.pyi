"""Roles of partitions; `partition_handle` is what Python calls."""
