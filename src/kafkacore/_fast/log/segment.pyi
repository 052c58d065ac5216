"""Segments of logs. Native code only, except for a count."""

def live_count() -> int:
    """Returns the number of segments in this process that have not been freed."""
