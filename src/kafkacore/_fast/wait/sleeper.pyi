"""A thread that waits for a partition by itself; native only."""
