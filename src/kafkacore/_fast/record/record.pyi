"""Record batches without the GIL. `batch` has the Python interface."""
