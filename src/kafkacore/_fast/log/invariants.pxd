"""The invariants of a partition and its log. They hold whenever `Log.lock` is free; debug builds check them at each
unlock."""

# For mutex_guards: `guarded` is a Partition.
cdef void check_partition(const void *guarded) noexcept nogil
