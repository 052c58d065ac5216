"""The start, the end and the timing of a fetcher. Native code only."""
