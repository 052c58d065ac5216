"""Native code only. Python calls `compaction`."""
