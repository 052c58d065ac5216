"""Producer state from snapshots and batches. Native only."""
