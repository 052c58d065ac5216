"""The partitions of a fetcher and their states. Native code only, except for a count."""

def live_count() -> int:
    """Number of followed partitions in this process that are not freed."""
