"""Appends a leader's records. Native code only."""
