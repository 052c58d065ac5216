"""A partition's log: its segments, producers, leader epochs and checkpointed offsets, on one log directory. Native only; `partition_handle` is what Python calls."""
