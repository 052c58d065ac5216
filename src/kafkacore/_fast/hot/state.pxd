"""The state that the hot APIs of a node share, in addition to the plane (plane.pxd): fetch sessions, endpoints and
limits. A hot API is an API that native code serves.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.atomics cimport add64, load_ptr
from kafkacore._fast.hot.endpoints cimport Endpoints
from kafkacore._fast.hot.fetch_session cimport FetchSessionCache, FetchSessions
from kafkacore._fast.log.replication_quota cimport Quota, ReplicationQuota

# Counts requests that wait for events in partitions, for the metrics of DelayedOperationPurgatory. The counters are
# atomic. Processors (the threads that serve connections) contend for these counters. But they already contend for the
# plane's memory budget whenever such a request begins to wait, so the additional cost is small.
ctypedef struct Purgatory:
    int64_t operations
    int64_t watched                      # the total number of partitions for which these operations wait

ctypedef struct NodeState:               # the plane's `hot_state`; exists longer than the plane
    int32_t fetch_max_bytes  # fetch.max.bytes: the largest size of an answer, unless its first batch is larger
    int32_t node_id
    bint selects_by_rack                 # replica.selector.class is RackAwareReplicaSelector (KIP-392)
    FetchSessions *sessions
    Quota *leader_quota                  # the quota for bytes that the node sends to followers (KIP-73); NULL for none
    Endpoints *endpoints                 # published; NULL until the node publishes a table
    char apart[64]  # separates the fields below, which change often, from the fields above, which seldom change
    Purgatory produce_purgatory
    Purgatory fetch_purgatory


cdef inline const Endpoints *endpoints_of(const NodeState *state) noexcept nogil:
    """Returns the published table. It is valid until the processor's current pass of its event loop ends."""
    return <const Endpoints *> load_ptr(<void *const *> &state.endpoints)


cdef inline void purgatory_enter(Purgatory *purgatory, int32_t watched) noexcept nogil:
    add64(&purgatory.operations, 1)
    add64(&purgatory.watched, watched)


cdef inline void purgatory_leave(Purgatory *purgatory, int32_t watched) noexcept nogil:
    add64(&purgatory.operations, -1)
    add64(&purgatory.watched, -watched)


cdef class HotState:
    """Owns the `NodeState` of one node. Keep this object until the plane is closed."""
    cdef NodeState state
    cdef FetchSessionCache sessions
    cdef ReplicationQuota leader_quota
