"""The followers of a partition that this node leads: their positions, and how these move the high watermark.

The caller holds the partition's lock for all of these.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.partition cimport Follower, FollowerFetch, Partition

cdef Follower *replicas_find(const Partition *p, int32_t broker_id) noexcept nogil
# The offset up to which the high watermark may advance when this node's log reaches `own`; -1 while the ISR is smaller
# than min.insync.replicas (KIP-966). The high watermark waits for the maximal ISR, and for followers that are about to
# join it.
cdef int64_t replicas_reached(const Partition *p, int64_t own) noexcept nogil
cdef int32_t replicas_least_isr(const Partition *p) noexcept nogil  # min.insync.replicas, within the number of replicas
cdef int32_t replicas_maximal_isr(const Partition *p) noexcept nogil  # the size of the maximal ISR
# Notes the position, the times and the broker epoch of a fetch. Returns 0. Returns NOT_LEADER_OR_FOLLOWER when the
# broker has restarted since that broker epoch (KIP-903). For a broker without a replica it returns
# UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER if the request has no epoch. Reports an edge when the follower may
# join the ISR now.
cdef int replicas_note(Partition *p, const FollowerFetch *fetch, int32_t current_epoch) noexcept nogil
cdef int replicas_check(const Partition *p, int32_t broker_id, int32_t current_epoch) noexcept nogil
# The lowest log start of all live replicas; -1 while one of them has not fetched.
cdef int64_t replicas_low_watermark(const Partition *p) noexcept nogil
cdef bint replicas_may_join(const Partition *p, const Follower *follower) noexcept nogil
cdef bint replicas_lags(const Partition *p, const Follower *follower, int64_t now_ms) noexcept nogil
# Whether a member of the ISR was last caught up more than replica.lag.time.max.ms ago.
cdef bint replicas_some_lag(const Partition *p, int64_t now_ms) noexcept nogil
# Completes `fresh`, in which broker ids and membership are set, with the state of brokers that were followers before.
# With `is_new_epoch` their positions are forgotten.
cdef void replicas_merge(const Partition *p, Follower *fresh, int32_t count, bint is_new_epoch,
                         int64_t now_ms) noexcept nogil
# Lists the members of the ISR on other brokers whose logs hold `offset`, so that a client may read it there, best first
# (KIP-392). Returns how many of `most` places it filled.
cdef int32_t replicas_readable(const Partition *p, int64_t offset, int32_t *broker_ids, int32_t most) noexcept nogil
