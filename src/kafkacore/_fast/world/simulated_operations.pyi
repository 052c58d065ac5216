"""The operations of a simulated disk. Only native code can use this module."""
