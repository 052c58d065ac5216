"""The partitions of a node whose ISR may have to change, and the states of the other brokers, on which such changes
depend.

A partition reports an edge (a need to look at its ISR) when a follower may join its ISR or a member has fallen behind.
The queue of edges coalesces: a partition stands in it at most once. Python drains it, decides and asks the controller
(`partition_edges`). The brokers are those of the committed metadata. A fenced broker, or one that has restarted since
its last Fetch, must not join an ISR (KIP-903).

`lock` guards all fields that are not marked atomic. It is a leaf: partitions take it under `Log.lock`. A link is part
of its partition. This struct does not count the partition: the link leaves before the partition is freed.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.links cimport LinkedList, ListLink
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.world.agenda cimport Agenda

ctypedef struct IsrLink:
    ListLink in_leading       # first
    ListLink in_waiting
    bint is_linked
    bint has_edge
    int32_t *refs             # atomic: the partition's count

cdef enum:
    BROKER_UNKNOWN = 0
    BROKER_FENCED = 1
    BROKER_LEAVING = 2        # in controlled shutdown
    BROKER_ACTIVE = 3

ctypedef struct BrokerState:
    int32_t broker_id
    int32_t state
    int64_t epoch

ctypedef struct IsrEdges:
    int32_t refs              # atomic
    Mutex lock
    int64_t max_lag_ms        # atomic: replica.lag.time.max.ms
    BrokerState *brokers      # sorted by id
    int32_t broker_count
    LinkedList leading        # IsrLink.in_leading: that lead and have followers, by the next look at their lag
    LinkedList waiting        # IsrLink.in_waiting: the queue of edges
    Inbox inbox
    Mail mail                 # wakes the thread that drains the queue

cdef IsrEdges *isr_edges_new(Agenda *agenda, int64_t max_lag_ms, int *error) noexcept nogil  # NULL: `error`, -errno
cdef void isr_edges_hold(IsrEdges *edges) noexcept nogil
cdef void isr_edges_release(IsrEdges *edges) noexcept nogil

# These take the lock.
cdef void isr_edges_link(IsrEdges *edges, IsrLink *link) noexcept nogil
# Leaves both lists; does nothing when it is in neither.
cdef void isr_edges_unlink(IsrEdges *edges, IsrLink *link) noexcept nogil
cdef void isr_edges_report(IsrEdges *edges, IsrLink *link) noexcept nogil
# Takes up to `most` edges, each with a count of its partition, which passes to the caller.
cdef int32_t isr_edges_take(IsrEdges *edges, IsrLink **into, int32_t most) noexcept nogil
# Up to `most` links, counted: those whose lag was not looked at for the longest time.
cdef int32_t isr_edges_oldest(IsrEdges *edges, IsrLink **into, int32_t most) noexcept nogil
cdef BrokerState isr_edges_broker(IsrEdges *edges, int32_t broker_id) noexcept nogil
# Takes over `brokers`, malloc'ed and sorted by id.
cdef void isr_edges_set_brokers(IsrEdges *edges, BrokerState *brokers, int32_t count) noexcept nogil
