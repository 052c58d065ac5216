"""The answers to a fetcher. Native code only."""
