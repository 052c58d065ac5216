"""The quota of a broker for the replication of throttled partitions (KIP-73, Kafka's ReplicationQuotaManager).

It has no clock: callers give it the time, monotonic. A leader has one for what it sends to followers, a follower one
for what it fetches. A partition whose quota is exceeded waits, but only for a replica outside the ISR; the traffic of
all throttled partitions counts. Which partitions are throttled stands in `Partition.throttled`.

`lock` guards all fields that are not marked atomic. It is a leaf.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.sync cimport Mutex

# Bits of Partition.throttled.
cdef enum:
    THROTTLED_LEADER = 1      # leader.replication.throttled.replicas names this broker's replica
    THROTTLED_FOLLOWER = 2    # likewise follower.replication.throttled.replicas

cdef enum:
    MOST_SAMPLES = 3600       # of a window; a broker that asks for more gets this many

ctypedef struct QuotaSample:
    int64_t started_ms
    int64_t last_ms           # of the last record; the sample expires by it
    int64_t size_bytes

ctypedef struct Quota:
    Mutex lock
    int64_t bytes_per_second  # atomic: the bound; the greatest number: no bound
    int32_t sample_count      # replication.quota.window.num
    int64_t sample_ms         # replication.quota.window.size.seconds
    QuotaSample *samples      # one more than `sample_count`: the oldest may overlap the window
    int32_t used
    int32_t current

cdef void quota_record(Quota *quota, int64_t size_bytes, int64_t now_ms) noexcept nogil
cdef bint quota_exceeded(Quota *quota, int64_t now_ms) noexcept nogil
cdef double quota_rate(Quota *quota, int64_t now_ms) noexcept nogil  # bytes per second


cdef class ReplicationQuota:
    """Owns a Quota. Keep it for as long as native code uses the Quota."""
    cdef Quota quota
