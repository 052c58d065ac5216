"""Where each leader epoch of a log begins. Native only; `partition_handle` is what Python calls."""
