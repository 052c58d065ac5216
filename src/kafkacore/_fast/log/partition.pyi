"""A partition as the data plane sees it; `partition_handle` is what Python calls."""

def live_count() -> int:
    """Partitions that somebody holds in this process."""
