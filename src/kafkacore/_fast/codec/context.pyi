"""Inflates and deflates gzip, snappy, lz4 and zstd without the GIL. `compression` is the Python interface."""

def live_contexts() -> int:
    """Returns the number of codec contexts that have not been freed yet."""
