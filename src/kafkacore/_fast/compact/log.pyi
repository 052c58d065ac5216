"""Native only: `compaction` is what Python calls."""
