"""The Python interface of a fetcher that a processor drives. It sends orders to the fetcher and receives its
reports."""

cimport cython

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, strerror

from kafkacore._fast.base.atomics cimport load32, load64, store32
from kafkacore._fast.follow.ask cimport LEAST_FETCH, LEAST_LIST_OFFSETS, MOST_FETCH, MOST_LIST_OFFSETS
from kafkacore._fast.follow.driver cimport LINK_ENDED, MOST_CLIENT_ID, Driver, driver_new, driver_release
from kafkacore._fast.follow.followed cimport FetcherLimits
from kafkacore._fast.follow.handle cimport counts_of, take_events
from kafkacore._fast.follow.orders cimport (
    NO_EPOCH, ORDER_ATTACH, ORDER_BROKER_EPOCH, ORDER_FOLLOW, ORDER_HOLD, ORDER_LOOK, ORDER_LOSE, ORDER_SHUT, Order,
    OrderItem, order_new, order_post,
)
from kafkacore._fast.log.partition cimport partition_hold
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.replication_quota cimport ReplicationQuota
from kafkacore._fast.plane.outbound cimport LOST_CLOSED, LOST_MALFORMED, LOST_NO_MEMORY, LOST_ORDERED, LOST_TIMED_OUT
from kafkacore._fast.plane.plane cimport NativePlane
from kafkacore._fast.plane.processor cimport NativeProcessor
from kafkacore._fast.wait.mail cimport inbox_awake, inbox_deliver, inbox_may_sleep, inbox_silence

from kafkacore._fast.follow import driver as drivers

LINKS = ("idle", "wanted", "up", "ended")
live = drivers.live

cdef dict REASONS = {
    LOST_CLOSED: "the other broker closed the connection",
    LOST_MALFORMED: "the other broker sent bytes that are not an answer",
    LOST_NO_MEMORY: "no memory is left for a request or its answer",
    LOST_TIMED_OUT: "no answer came within replica.socket.timeout.ms",
    LOST_ORDERED: "this broker ended the connection",
}
cdef dict KINDS = {
    LOST_CLOSED: "closed", LOST_MALFORMED: "malformed", LOST_NO_MEMORY: "memory", LOST_TIMED_OUT: "timeout",
    LOST_ORDERED: "ordered",
}


@cython.no_gc  # the handle is part of no reference cycle, and its directories must outlive its partitions
cdef class DriverHandle:
    """Holds one reference to a Driver."""
    cdef Driver *driver
    cdef NativePlane plane
    cdef NativeProcessor processor  # its thread runs the driver
    cdef int64_t ordered
    cdef ReplicationQuota quota
    # The directories of all partitions so far, because a native reference does not keep the Python objects alive.
    cdef set directories

    def __cinit__(self, NativePlane plane not None, NativeProcessor processor not None, int32_t node_id, str client_id,
                  *, int32_t max_wait_ms=500, int32_t min_bytes=1, int32_t response_max_bytes=10485760,
                  int32_t max_bytes=1048576, int32_t backoff_ms=1000, int64_t timeout_ms=30000,
                  ReplicationQuota quota=None):
        cdef FetcherLimits limits
        cdef bytes name = client_id.encode()[:MOST_CLIENT_ID]
        cdef int error
        self.plane = plane
        self.processor = processor
        self.directories = set()
        limits.node_id = node_id
        limits.max_wait_ms = max_wait_ms
        limits.min_bytes = min_bytes
        limits.response_max_bytes = response_max_bytes
        limits.max_bytes = max_bytes
        limits.backoff_ms = backoff_ms
        self.quota = quota
        limits.quota = &quota.quota if quota is not None else NULL
        # A single batch may be larger than all of the configured limits.
        self.driver = driver_new(&processor.processor.reactor, plane.plane, &limits,
                                 plane.plane.max_request_bytes + response_max_bytes, &error)
        if self.driver == NULL:
            raise OSError(-error, "no file descriptor is left for an inbox; raise the limit of open files")
        memcpy(self.driver.client_id, <const char *> name, len(name))
        self.driver.client_id_size = <int16_t> len(name)
        self.driver.timeout_ms = timeout_ms
        inbox_may_sleep(&self.driver.bell)

    def __dealloc__(self):
        cdef Order *order
        if self.driver == NULL:
            return
        if load32(&self.driver.link) != LINK_ENDED:
            order = order_new(self.driver, ORDER_SHUT, 0)
            if order != NULL:
                order_post(order)
        with nogil:
            driver_release(self.driver)

    def fileno(self):
        return self.driver.bell.eventfd

    def heed(self):
        inbox_awake(&self.driver.bell)
        inbox_silence(&self.driver.bell)
        while True:
            inbox_deliver(&self.driver.bell)
            if inbox_may_sleep(&self.driver.bell):
                return

    # --- reports ---

    @property
    def link(self):
        return LINKS[load32(&self.driver.link)]

    @property
    def losses(self):
        return load32(&self.driver.losses)

    @property
    def lost_why(self):
        cdef int32_t why = load32(&self.driver.lost_why)
        return REASONS[why] if why <= 0 else strerror(why).decode()

    @property
    def lost_kind(self):
        return KINDS.get(load32(&self.driver.lost_why), "socket")

    @property
    def answered(self):
        return load32(&self.driver.answered)

    @property
    def refusals(self):
        return load32(&self.driver.refusals)

    @property
    def refusal(self):
        return load32(&self.driver.refusal)

    @property
    def jobs(self):
        return load32(&self.driver.fetcher.jobs_out)

    def events(self):
        cdef int32_t count = load32(&self.driver.event_count)
        if count == 0:
            return []
        found = take_events(self.driver.events, count)
        store32(&self.driver.event_count, 0)
        self.look()  # there may be more events
        return found

    def counts(self):
        return counts_of(&self.driver.fetcher.counts)

    # --- orders ---

    cdef Order *order(self, int kind, int32_t count) except NULL:
        cdef Order *order = order_new(self.driver, kind, count)
        if order == NULL:
            raise MemoryError
        return order

    cdef int64_t post(self, Order *order):
        order_post(order)
        self.ordered += 1
        return self.ordered

    @property
    def orders(self):
        return load64(&self.driver.orders)

    def look(self):
        return self.post(self.order(ORDER_LOOK, 0))

    def follow(self, partitions):
        cdef list items = list(partitions)
        cdef Order *order = self.order(ORDER_FOLLOW, <int32_t> len(items))
        cdef PartitionHandle partition
        cdef int32_t leader_epoch
        for partition, leader_epoch in items:
            self.directories.add(partition.directory)
            add_item(order, partition, leader_epoch)
        self.post(order)

    def stop(self, partitions):
        cdef list items = list(partitions)
        cdef Order *order = self.order(ORDER_FOLLOW, <int32_t> len(items))
        cdef PartitionHandle partition
        for partition in items:
            add_item(order, partition, NO_EPOCH)
        self.post(order)

    def attach(self, int handle, int16_t fetch_version, int16_t list_offsets_version, int64_t broker_epoch):
        cdef Order *order
        if not (LEAST_FETCH <= fetch_version <= MOST_FETCH
                and LEAST_LIST_OFFSETS <= list_offsets_version <= MOST_LIST_OFFSETS):
            raise ValueError(f"Fetch {fetch_version} or ListOffsets {list_offsets_version} is not supported")
        order = self.order(ORDER_ATTACH, 0)
        order.handle = handle
        order.fetch_version = fetch_version
        order.offsets_version = list_offsets_version
        order.broker_epoch = broker_epoch
        return self.post(order)

    def know_broker_epoch(self, int64_t broker_epoch):
        cdef Order *order = self.order(ORDER_BROKER_EPOCH, 0)
        order.broker_epoch = broker_epoch
        self.post(order)

    def disconnect(self):
        cdef Order *order = self.order(ORDER_LOSE, 0)
        order.why = LOST_ORDERED
        self.post(order)

    def hold(self, *, bint reads, bint writes):
        cdef Order *order = self.order(ORDER_HOLD, 0)
        order.holds_reads = reads
        order.holds_writes = writes
        self.post(order)

    def shut(self):
        self.post(self.order(ORDER_SHUT, 0))


cdef void add_item(Order *order, PartitionHandle partition, int32_t leader_epoch):
    cdef OrderItem *item = &order.items[order.count]
    item.partition = partition.partition
    item.leader_epoch = leader_epoch
    partition_hold(partition.partition)
    order.count += 1
