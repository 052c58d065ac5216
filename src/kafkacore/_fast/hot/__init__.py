"""The APIs that processors answer without the GIL: Produce, Fetch, ListOffsets, heartbeats, offset commits."""
