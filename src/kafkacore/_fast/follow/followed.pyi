"""The partitions of a fetcher and their states. Native code only, except for a count."""

def live_count() -> int:
    """Returns the number of followed partitions in this process that have not been freed."""
