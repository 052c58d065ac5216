"""Segments of logs; native only."""

def live_count() -> int:
    """Segments that somebody holds in this process."""
