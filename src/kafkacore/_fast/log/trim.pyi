"""What takes records away from a log. Native only; `partition_handle` is what Python calls."""
