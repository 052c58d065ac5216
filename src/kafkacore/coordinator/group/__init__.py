"""The group coordinator, the part that decides: one `GroupShard` for each partition of `__consumer_offsets`."""
