"""The transaction index of a segment. Native code only; Python calls `partition_handle`."""
