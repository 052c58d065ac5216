"""The quota of a broker for the replication of throttled partitions (KIP-73, Kafka's ReplicationQuotaManager).

A `Quota` has no clock; callers pass the monotonic time. A broker has one quota for the records that it sends to
followers, and one for the records that it fetches. While a quota is exceeded, the broker delays the replication of
throttled partitions, but only to replicas outside the ISR. The traffic of all throttled partitions counts against the
quota. `Partition.throttled` says whether a partition is throttled.

`lock` guards all fields, except those commented "atomic". A thread that holds `lock` takes no other lock.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.sync cimport Mutex

# The bits of `Partition.throttled`.
cdef enum:
    THROTTLED_LEADER = 1      # leader.replication.throttled.replicas names this broker's replica
    THROTTLED_FOLLOWER = 2    # follower.replication.throttled.replicas names this broker's replica

cdef enum:
    MOST_SAMPLES = 3600       # a window has at most this many samples, even if replication.quota.window.num is greater

ctypedef struct QuotaSample:
    int64_t started_ms
    int64_t last_ms           # the time of the last `quota_record`; the age of the sample is counted from this time
    int64_t size_bytes

ctypedef struct Quota:
    Mutex lock
    int64_t bytes_per_second  # atomic: the limit; the greatest number means no limit
    int32_t sample_count      # replication.quota.window.num
    int64_t sample_ms         # replication.quota.window.size.seconds
    QuotaSample *samples      # one more than `sample_count`, because the oldest may overlap the window's start
    int32_t used
    int32_t current

cdef void quota_record(Quota *quota, int64_t size_bytes, int64_t now_ms) noexcept nogil
cdef bint quota_has_bound(const Quota *quota) noexcept nogil  # without a limit, nothing is throttled
cdef bint quota_exceeded(Quota *quota, int64_t now_ms) noexcept nogil
cdef double quota_rate(Quota *quota, int64_t now_ms) noexcept nogil  # in bytes per second


cdef class ReplicationQuota:
    """Owns a `Quota`. Keep this object for as long as native code uses the `Quota`."""
    cdef Quota quota
