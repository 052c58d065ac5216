"""With a `PartitionWatch`, a request that Python answers can wait on an event loop for events in partitions. One thread
creates, arms and reads the watch. Threads that change a partition wake the watch.
"""
