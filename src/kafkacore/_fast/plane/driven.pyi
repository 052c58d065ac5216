"""Work of a processor beside connections. Native code only."""
