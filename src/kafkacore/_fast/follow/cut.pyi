"""Truncations of a fetcher. Native code only."""
