"""The invariants of a partition and its log. They hold whenever `Log.lock` is free; debug builds check them at each
unlock."""

# Checks the invariants. In debug builds, mutex_guards registers this function, and each unlock calls it with the
# Partition as `guarded`.
cdef void check_partition(const void *guarded) noexcept nogil
