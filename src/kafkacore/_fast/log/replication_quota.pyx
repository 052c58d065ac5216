"""Implements replication_quota.pxd: replication quotas (SimpleRate over a WindowedSum)."""

cimport cython

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.atomics cimport load64, store64
from kafkacore._fast.base.lock_order cimport RANK_QUOTA
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock

cdef int64_t NO_BOUND_BYTES = 0x7FFFFFFFFFFFFFFF


cdef void sample_begin(QuotaSample *sample, int64_t now_ms) noexcept nogil:
    sample.started_ms = sample.last_ms = now_ms
    sample.size_bytes = 0


cdef QuotaSample *present_sample(Quota *quota, int64_t now_ms) noexcept nogil:
    """Returns the sample for the current time. An idle quota creates no samples, so the window can have gaps."""
    if quota.used == 0:
        quota.used = 1
        sample_begin(&quota.samples[0], now_ms)
    elif now_ms - quota.samples[quota.current].started_ms >= quota.sample_ms:
        quota.current = (quota.current + 1) % (quota.sample_count + 1)
        quota.used = max(quota.used, quota.current + 1)
        sample_begin(&quota.samples[quota.current], now_ms)
    return &quota.samples[quota.current]


cdef double rate_of(Quota *quota, int64_t now_ms) noexcept nogil:
    """Returns the rate over the window. Call this with the lock held. A sample that overlaps the start of the window
    counts completely, and the window then begins at the start of that sample. The window is never shorter than a
    sample, because otherwise the first bytes would look like a burst."""
    cdef QuotaSample *sample
    cdef int64_t total_bytes = 0
    cdef int64_t oldest_ms = now_ms
    cdef int32_t i
    for i in range(quota.used):
        sample = &quota.samples[i]
        if now_ms - sample.last_ms >= quota.sample_count * quota.sample_ms:
            sample_begin(sample, now_ms)
        total_bytes += sample.size_bytes
        oldest_ms = min(oldest_ms, sample.started_ms)
    return total_bytes * 1000.0 / max(now_ms - oldest_ms, quota.sample_ms)


cdef void quota_record(Quota *quota, int64_t size_bytes, int64_t now_ms) noexcept nogil:
    cdef QuotaSample *sample
    mutex_lock(&quota.lock)
    sample = present_sample(quota, now_ms)
    sample.size_bytes += size_bytes
    sample.last_ms = now_ms
    mutex_unlock(&quota.lock)


cdef double quota_rate(Quota *quota, int64_t now_ms) noexcept nogil:
    cdef double rate
    mutex_lock(&quota.lock)
    rate = rate_of(quota, now_ms)
    mutex_unlock(&quota.lock)
    return rate


cdef bint quota_has_bound(const Quota *quota) noexcept nogil:
    return load64(&quota.bytes_per_second) != NO_BOUND_BYTES


cdef bint quota_exceeded(Quota *quota, int64_t now_ms) noexcept nogil:
    cdef int64_t bound = load64(&quota.bytes_per_second)
    return bound != NO_BOUND_BYTES and quota_rate(quota, now_ms) > bound


# --- the Python interface ---

NO_BOUND = NO_BOUND_BYTES
BY_LEADER, BY_FOLLOWER = THROTTLED_LEADER, THROTTLED_FOLLOWER


@cython.no_gc  # the object is part of no reference cycle, and threads use its `quota` until it is freed
cdef class ReplicationQuota:

    def __cinit__(self, int32_t samples=11, int64_t sample_ms=1000, int64_t bytes_per_second=NO_BOUND_BYTES):
        if samples < 1 or sample_ms < 1:
            raise ValueError(f"a window needs at least one sample of at least 1 ms, not {samples} of {sample_ms} ms")
        self.quota.sample_count = min(samples, <int32_t> MOST_SAMPLES)
        self.quota.sample_ms = sample_ms
        self.quota.bytes_per_second = bytes_per_second
        self.quota.samples = <QuotaSample *> calloc(self.quota.sample_count + 1, sizeof(QuotaSample))
        if self.quota.samples == NULL:
            raise MemoryError
        if mutex_init(&self.quota.lock, RANK_QUOTA) != 0:
            raise MemoryError("no lock for a replication quota")

    def __dealloc__(self):
        if self.quota.samples != NULL:
            mutex_destroy(&self.quota.lock)
        free(self.quota.samples)

    @property
    def bytes_per_second(self):
        return load64(&self.quota.bytes_per_second)

    @bytes_per_second.setter
    def bytes_per_second(self, int64_t bytes_per_second):
        store64(&self.quota.bytes_per_second, bytes_per_second)

    def record(self, int64_t size_bytes, int64_t now_ms):
        with nogil:
            quota_record(&self.quota, size_bytes, now_ms)

    def exceeded(self, int64_t now_ms):
        cdef bint exceeded
        with nogil:
            exceeded = quota_exceeded(&self.quota, now_ms)
        return exceeded

    def rate(self, int64_t now_ms):
        cdef double rate
        with nogil:
            rate = quota_rate(&self.quota, now_ms)
        return rate
