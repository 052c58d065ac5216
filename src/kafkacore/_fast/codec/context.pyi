"""gzip, snappy, lz4 and zstd without the GIL; see `compression` for what Python calls."""

def live_contexts() -> int:
    """Codec contexts that were made and not yet freed."""
