"""Record batches without the GIL; see `batch` for the Python interface."""
