"""The queue of partitions whose ISR may have to change. The queue also knows the states of the other brokers, because
these states decide which brokers may join an ISR.

A partition reports an "edge" when a follower may join its ISR or a member of its ISR has fallen behind. The queue holds
a partition at most once. Python drains the queue, decides which ISRs change, and sends requests to the controller
(`partition_edges`). The list of brokers comes from the committed metadata. A broker must not join an ISR if it is
fenced or has restarted since its last Fetch (KIP-903).

`lock` guards all fields except those commented "atomic". A thread that holds `lock` takes no other lock. A thread that
holds `Log.lock` may take `lock`. Each partition contains its `IsrLink`. `IsrEdges` holds no reference to the partition,
so the link must be removed before the partition is freed.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.links cimport LinkedList, ListLink
from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.world.agenda cimport Agenda

ctypedef struct IsrLink:
    ListLink in_leading       # must be the first field
    ListLink in_waiting
    bint is_linked
    bint has_edge
    int32_t *refs             # atomic: the reference count of the partition

cdef enum:
    BROKER_UNKNOWN = 0
    BROKER_FENCED = 1
    BROKER_LEAVING = 2        # in a controlled shutdown
    BROKER_ACTIVE = 3

ctypedef struct BrokerState:
    int32_t broker_id
    int32_t state
    int64_t epoch

ctypedef struct IsrEdges:
    int32_t refs              # atomic
    Mutex lock
    int64_t max_lag_ms        # atomic: replica.lag.time.max.ms
    BrokerState *brokers      # sorted by broker id
    int32_t broker_count
    # The partitions that this node leads, linked by `in_leading`. The next lag check begins at the first one.
    LinkedList leading
    LinkedList waiting        # linked by `in_waiting`: the queue of partitions that reported an edge
    Inbox inbox
    Mail mail                 # a message that wakes the thread that drains the queue (mail.pxd)

# After a failure, returns NULL and stores -errno in `error`.
cdef IsrEdges *isr_edges_new(Agenda *agenda, int64_t max_lag_ms, int *error) noexcept nogil
cdef void isr_edges_hold(IsrEdges *edges) noexcept nogil
cdef void isr_edges_release(IsrEdges *edges) noexcept nogil

# The functions below take `lock`.
cdef void isr_edges_link(IsrEdges *edges, IsrLink *link) noexcept nogil
# Removes the link from both lists. Does nothing if the link is in neither list.
cdef void isr_edges_unlink(IsrEdges *edges, IsrLink *link) noexcept nogil
cdef void isr_edges_report(IsrEdges *edges, IsrLink *link) noexcept nogil
# Removes up to `most` links from the queue, the oldest first. Returns their number. The caller gets a reference to the
# partition of each link.
cdef int32_t isr_edges_take(IsrEdges *edges, IsrLink **into, int32_t most) noexcept nogil
# Stores up to `most` links of `leading` in `into`, beginning with the partitions whose lag was checked least recently.
# Returns their number. The caller gets a reference to the partition of each link.
cdef int32_t isr_edges_oldest(IsrEdges *edges, IsrLink **into, int32_t most) noexcept nogil
cdef BrokerState isr_edges_broker(IsrEdges *edges, int32_t broker_id) noexcept nogil
# Takes ownership of `brokers`, which must be malloc'ed and sorted by id.
cdef void isr_edges_set_brokers(IsrEdges *edges, BrokerState *brokers, int32_t count) noexcept nogil
