"""A connection to another node. Native code only."""
