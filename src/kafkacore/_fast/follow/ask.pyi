"""The requests of a fetcher. Native code only."""
