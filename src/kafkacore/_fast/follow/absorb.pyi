"""Applies the answers to a fetcher's requests. Native code only."""
