"""The state machine of the group coordinator: one `GroupShard` for each partition of `__consumer_offsets`."""
