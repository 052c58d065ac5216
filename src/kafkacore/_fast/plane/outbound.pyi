"""A connection to another node. Only native code can use this module."""
