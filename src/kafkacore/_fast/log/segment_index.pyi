"""The offset and time indexes of segments. Native code only."""
