"""The transaction index beside a segment. Native only; `partition_handle` is what Python calls."""
