"""Opening logs for appends. Native only; Python calls `partition_handle`."""
