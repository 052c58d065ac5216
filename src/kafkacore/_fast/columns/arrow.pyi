"""Arrow arrays that native code has exported."""

def live() -> int:
    """Returns the number of arrays that have not been released yet. For tests."""
