"""Where each leader epoch of a log begins (KIP-101, KIP-279, KIP-320; LeaderEpochFileCache). Under the log's lock. Native only; `partition_handle` is what Python calls."""
