"""A partition's log on one log directory. Native only; `partition_handle` is what Python calls."""
