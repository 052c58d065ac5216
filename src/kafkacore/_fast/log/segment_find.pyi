"""Finds batches in segments. Native code only."""
