"""A partition in the data plane. Native code only, except for a count; Python calls `partition_handle`."""

def live_count() -> int:
    """Returns the number of partitions in this process that have not been freed."""
