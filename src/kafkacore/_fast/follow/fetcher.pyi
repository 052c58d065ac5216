"""The life of a fetcher. Native code only."""
