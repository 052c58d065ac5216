"""Work of a processor in addition to connections. Only native code can use this module."""
