"""Readers of many partitions. Fetch sessions are the only such readers."""
