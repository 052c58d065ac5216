"""What a log has done for it on pool threads: its first append's files, rolls, syncs, the leader-epoch checkpoint. Native only; `partition_handle` is what Python calls."""
