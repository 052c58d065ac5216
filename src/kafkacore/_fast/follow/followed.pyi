"""The partitions of a fetcher and their states. Python code can only read a count, for tests."""

def live_count() -> int:
    """Returns the number of followed partitions in this process that have not been freed."""
