"""gzip, snappy, lz4 and zstd without the GIL; see `compression` for the Python interface."""

def live_contexts() -> int:
    """Codec contexts that are not freed yet."""
