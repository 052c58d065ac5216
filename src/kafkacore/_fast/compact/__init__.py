"""Compaction of a log, in steps that a cleaner thread performs."""
