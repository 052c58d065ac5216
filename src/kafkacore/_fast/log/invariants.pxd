"""What holds of a partition and its log whenever `Log.lock` is free. Debug builds check it at each unlock."""

# For mutex_guards: `guarded` is a Partition.
cdef void check_partition(const void *guarded) noexcept nogil
