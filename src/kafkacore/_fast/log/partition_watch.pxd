"""Lets requests that Python answers wait for partitions, on an event loop. One thread creates, arms and reads a
PartitionWatch. Partitions wake it from any thread."""
