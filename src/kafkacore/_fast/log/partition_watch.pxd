"""The waiters of requests that Python answers, on the partitions that a loop watches. One thread makes, arms and reads
a watch; partitions wake it from any thread."""
