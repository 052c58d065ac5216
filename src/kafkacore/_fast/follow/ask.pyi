"""Writes the requests of a fetcher. Native code only."""
