"""Loads a log from its directory. Native code only; Python calls `partition_load`."""
