"""Segments of logs; native only."""

def live_count() -> int:
    """Number of live segments in this process."""
