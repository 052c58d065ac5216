"""A partition as the data plane sees it; `partition_handle` is what Python calls."""

def live_count() -> int:
    """Number of live partitions in this process."""
