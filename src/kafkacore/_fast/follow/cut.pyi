"""The truncations of a fetcher's partitions. Native code only."""
