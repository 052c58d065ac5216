"""Loading a log from its directory. Native only; `partition_handle` is what Python calls."""
