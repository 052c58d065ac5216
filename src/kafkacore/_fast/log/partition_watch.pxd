"""With a PartitionWatch, a request that Python answers can wait for partitions on an event loop. One thread creates,
arms and reads the watch. Partitions wake it from any thread."""
