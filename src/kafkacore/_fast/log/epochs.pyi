"""The start offset of each leader epoch of a log. Native code only; Python calls `partition_handle`."""
