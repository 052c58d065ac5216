"""Threads that wait for a partition. Only native code can use this module."""
