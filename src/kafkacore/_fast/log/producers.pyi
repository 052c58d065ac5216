"""What logs remember of their producers; native only."""

def live_count() -> int:
    """Producers that logs of this process remember."""
