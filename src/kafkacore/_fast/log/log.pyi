"""A partition's log on one log directory. Native code only; Python calls `partition_handle`."""
