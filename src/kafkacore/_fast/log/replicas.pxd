"""The followers of a partition that this node leads: their positions, and the high watermark that results from these
positions. The maximal ISR consists of the committed ISR and the ISR that the leader has proposed to the controller
(KIP-497).

Call all of these functions with `Log.lock` held.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.log.partition cimport Follower, FollowerFetch, Partition

cdef Follower *replicas_find(const Partition *p, int32_t broker_id) noexcept nogil
# Returns the greatest offset that the high watermark may reach when this node's log ends at `own`. Returns -1 while the
# ISR is smaller than min.insync.replicas (KIP-966). The high watermark waits for the maximal ISR, and for followers
# that are about to join the ISR.
cdef int64_t replicas_reached(const Partition *p, int64_t own) noexcept nogil
# min.insync.replicas, limited by the number of replicas
cdef int32_t replicas_least_isr(const Partition *p) noexcept nogil
cdef int32_t replicas_maximal_isr(const Partition *p) noexcept nogil  # the size of the maximal ISR
# Notes the position, the times and the broker epoch of a follower's fetch. Returns 0 on success. Returns
# NOT_LEADER_OR_FOLLOWER if the broker epoch is outdated because the broker has restarted (KIP-903). For a broker
# without a replica, returns UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER if the request has no epoch. Reports the
# partition to the queue (isr_edges.pxd) if the follower may now join the ISR.
cdef int replicas_note(Partition *p, const FollowerFetch *fetch, int32_t current_epoch) noexcept nogil
# Returns 0 if the broker has a replica, else the same error code as `replicas_note`.
cdef int replicas_check(const Partition *p, int32_t broker_id, int32_t current_epoch) noexcept nogil
# Returns the lowest log start offset of all live replicas, or -1 while one of them has not fetched.
cdef int64_t replicas_low_watermark(const Partition *p) noexcept nogil
cdef bint replicas_may_join(const Partition *p, const Follower *follower) noexcept nogil
cdef bint replicas_lags(const Partition *p, const Follower *follower, int64_t now_ms) noexcept nogil
# Sets `must_leave` of each follower. The periodic check calls this.
cdef void replicas_check_lag(Partition *p, int64_t now_ms) noexcept nogil
# Returns whether the follower is in the ISR, lagged at the last periodic check, and still lags.
cdef bint replicas_must_leave(const Partition *p, const Follower *follower, int64_t now_ms) noexcept nogil
cdef bint replicas_some_must_leave(const Partition *p, int64_t now_ms) noexcept nogil
# Completes the `count` followers in `fresh`. The caller has set their broker ids and their ISR membership. If a broker
# was a follower before, copies the follower's state, except at the start of a leader epoch (`is_new_epoch`).
cdef void replicas_merge(const Partition *p, Follower *fresh, int32_t count, bint is_new_epoch,
                         int64_t now_ms) noexcept nogil
# Lists the other brokers in the ISR whose logs contain `offset`, so that a client may read from them (KIP-392). The
# best broker comes first. Returns the number of listed brokers, at most `most`.
cdef int32_t replicas_readable(const Partition *p, int64_t offset, int32_t *broker_ids, int32_t most) noexcept nogil
