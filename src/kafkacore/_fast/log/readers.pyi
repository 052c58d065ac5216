"""Readers of many partitions; fetch sessions are the only ones."""
