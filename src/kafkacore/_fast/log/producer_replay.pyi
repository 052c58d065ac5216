"""Rebuilds producer state from snapshots and batches. Native code only."""
