"""The invariants of a partition and its log. They hold whenever `Log.lock` is free; debug builds check them at each
unlock."""

# Checks the invariants. mutex_guards calls this with a Partition as `guarded`.
cdef void check_partition(const void *guarded) noexcept nogil
