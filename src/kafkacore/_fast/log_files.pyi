"""The small files beside a log's segments: written whole, by way of a temporary file and a rename, so that a reader finds the Native only; `partition_handle` is what Python calls."""
