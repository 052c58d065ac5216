"""The invariants of a partition and its log. They hold whenever `Log.lock` is free; debug builds check them at each
unlock."""

# Checks the invariants of the `Partition` to which `guarded` points. In debug builds, `mutex_guards` registers this
# function, so that each unlock calls it.
cdef void check_partition(const void *guarded) noexcept nogil
