"""The state that the hot APIs of a node share beyond the plane: fetch sessions, endpoints, limits."""

from libc.stdint cimport int32_t

from kafkacore._fast.base.atomics cimport load_ptr
from kafkacore._fast.hot.endpoints cimport Endpoints
from kafkacore._fast.hot.fetch_session cimport FetchSessionCache, FetchSessions
from kafkacore._fast.log.replication_quota cimport Quota, ReplicationQuota

ctypedef struct NodeState:               # plane.hot_state; outlives the plane
    int32_t fetch_max_bytes              # fetch.max.bytes: the most bytes of an answer; its first batch may be larger
    int32_t node_id
    bint selects_by_rack                 # replica.selector.class is RackAwareReplicaSelector (KIP-392)
    FetchSessions *sessions
    Quota *leader_quota                  # of what it sends to followers (KIP-73); NULL: none
    Endpoints *endpoints                 # published; NULL until the node publishes a table


cdef inline const Endpoints *endpoints_of(const NodeState *state) noexcept nogil:
    """The published table, valid for this turn of the processor."""
    return <const Endpoints *> load_ptr(<void *const *> &state.endpoints)


cdef class HotState:
    """Owns the NodeState of one node. Keep it until the plane is closed."""
    cdef NodeState state
    cdef FetchSessionCache sessions
    cdef ReplicationQuota leader_quota
