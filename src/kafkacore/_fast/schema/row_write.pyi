"""Nothing here is for Python: rows are written through columns."""
