"""Loading a log from its directory: after a clean shutdown, or with recovery from the recovery point (LogLoader, LogSegment.recover). Native only; `partition_handle` is what Python calls."""
