"""Implements isr_edges.pxd: partitions report when their ISR may have to change. (In Kafka, Partition.maybeExpandIsr
and maybeShrinkIsr decide about the change. Here, Python decides.)"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.atomics cimport add32, cas32, load32
from kafkacore._fast.base.links cimport list_append, list_remove
from kafkacore._fast.base.lock_order cimport RANK_ISR_EDGES
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.wait.mail cimport Mail, inbox_close, inbox_init_in, inbox_may_sleep, inbox_post
from kafkacore._fast.world.agenda cimport Agenda


cdef void delivered(Mail *mail) noexcept nogil:
    """Does nothing, because the wake-up itself is the signal."""


cdef IsrEdges *isr_edges_new(Agenda *agenda, int64_t max_lag_ms, int *error) noexcept nogil:
    cdef IsrEdges *edges = <IsrEdges *> calloc(1, sizeof(IsrEdges))
    error[0] = -ENOMEM
    if edges == NULL:
        return NULL
    error[0] = inbox_init_in(&edges.inbox, agenda)
    if error[0] == 0:
        error[0] = -mutex_init(&edges.lock, RANK_ISR_EDGES)
        if error[0] != 0:
            inbox_close(&edges.inbox)
    if error[0] != 0:
        free(edges)
        return NULL
    edges.refs = 1
    edges.max_lag_ms = max_lag_ms
    edges.mail.deliver = delivered
    inbox_may_sleep(&edges.inbox)
    return edges


cdef void isr_edges_hold(IsrEdges *edges) noexcept nogil:
    add32(&edges.refs, 1)


cdef void isr_edges_release(IsrEdges *edges) noexcept nogil:
    if edges == NULL or add32(&edges.refs, -1) != 0:
        return
    inbox_close(&edges.inbox)
    mutex_destroy(&edges.lock)
    free(edges.brokers)
    free(edges)


# --- the caller holds the lock ---

cdef inline IsrLink *of_waiting(ListLink *link) noexcept nogil:
    cdef IsrLink layout  # used only to compute the offset of the field
    return <IsrLink *> (<char *> link - (<char *> &layout.in_waiting - <char *> &layout))


cdef void end_wait(IsrEdges *edges, IsrLink *link) noexcept nogil:
    list_remove(&edges.waiting, &link.in_waiting)
    link.has_edge = False


cdef bint try_hold(IsrLink *link) noexcept nogil:
    """Takes a reference to the link's partition. Returns False if the partition is being freed. In that case the
    freeing thread waits for this lock, because it must remove the link from the lists."""
    cdef int32_t refs = load32(link.refs)
    while refs > 0:
        if cas32(link.refs, refs, refs + 1):
            return True
        refs = load32(link.refs)
    return False


# --- these take the lock ---

cdef void isr_edges_link(IsrEdges *edges, IsrLink *link) noexcept nogil:
    mutex_lock(&edges.lock)
    if not link.is_linked:
        link.is_linked = True
        list_append(&edges.leading, &link.in_leading)
    mutex_unlock(&edges.lock)


cdef void isr_edges_unlink(IsrEdges *edges, IsrLink *link) noexcept nogil:
    mutex_lock(&edges.lock)
    if link.is_linked:
        link.is_linked = False
        list_remove(&edges.leading, &link.in_leading)
    if link.has_edge:
        end_wait(edges, link)
    mutex_unlock(&edges.lock)


cdef void isr_edges_report(IsrEdges *edges, IsrLink *link) noexcept nogil:
    cdef bint is_new = False
    mutex_lock(&edges.lock)
    if link.is_linked and not link.has_edge:
        is_new = link.has_edge = True
        list_append(&edges.waiting, &link.in_waiting)
    mutex_unlock(&edges.lock)
    if is_new:
        inbox_post(&edges.inbox, &edges.mail)


cdef int32_t isr_edges_take(IsrEdges *edges, IsrLink **into, int32_t most) noexcept nogil:
    cdef IsrLink *link
    cdef int32_t count = 0
    mutex_lock(&edges.lock)
    while count < most and edges.waiting.first != NULL:
        link = of_waiting(edges.waiting.first)
        end_wait(edges, link)
        if try_hold(link):
            into[count] = link
            count += 1
    mutex_unlock(&edges.lock)
    return count


cdef int32_t isr_edges_oldest(IsrEdges *edges, IsrLink **into, int32_t most) noexcept nogil:
    cdef IsrLink *link
    cdef int32_t count = 0
    cdef int32_t looked = 0
    mutex_lock(&edges.lock)
    while looked < min(most, edges.leading.count):
        looked += 1
        link = <IsrLink *> edges.leading.first
        list_remove(&edges.leading, &link.in_leading)
        list_append(&edges.leading, &link.in_leading)
        if try_hold(link):
            into[count] = link
            count += 1
    mutex_unlock(&edges.lock)
    return count


# --- brokers ---

cdef BrokerState isr_edges_broker(IsrEdges *edges, int32_t broker_id) noexcept nogil:
    cdef BrokerState found
    cdef int32_t low = 0
    cdef int32_t high, middle
    found.broker_id = broker_id
    found.state = BROKER_UNKNOWN
    found.epoch = -1
    mutex_lock(&edges.lock)
    high = edges.broker_count
    while low < high:
        middle = (low + high) >> 1
        if edges.brokers[middle].broker_id < broker_id:
            low = middle + 1
        else:
            high = middle
    if low < edges.broker_count and edges.brokers[low].broker_id == broker_id:
        found = edges.brokers[low]
    mutex_unlock(&edges.lock)
    return found


cdef void isr_edges_set_brokers(IsrEdges *edges, BrokerState *brokers, int32_t count) noexcept nogil:
    cdef BrokerState *before
    mutex_lock(&edges.lock)
    before = edges.brokers
    edges.brokers = brokers
    edges.broker_count = count
    mutex_unlock(&edges.lock)
    free(before)
