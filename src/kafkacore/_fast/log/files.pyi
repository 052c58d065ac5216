"""The small files beside a log's segments. Native only; `partition_handle` is what Python calls."""
