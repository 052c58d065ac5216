"""Ends the work of logs. Native code only; Python calls `partition_handle`."""
