"""Record batches without the GIL; see `batch` for what Python calls."""
