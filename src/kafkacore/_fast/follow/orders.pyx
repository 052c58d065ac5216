"""Implements orders.pxd: the orders to a driver."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.atomics cimport add32, add64
from kafkacore._fast.follow.driver cimport (
    Driver, driver_attach, driver_begin, driver_look, driver_lose, driver_release, driver_shut,
)
from kafkacore._fast.follow.fetcher cimport fetcher_follow, fetcher_stop
from kafkacore._fast.log.partition cimport partition_release
from kafkacore._fast.plane.outbound cimport LOST_NO_MEMORY, outbound_hold
from kafkacore._fast.wait.mail cimport Mail, inbox_post


cdef Order *order_new(Driver *d, int kind, int32_t count) noexcept nogil:
    cdef Order *order = <Order *> calloc(1, sizeof(Order) + <size_t> max(count - 1, 0) * sizeof(OrderItem))
    if order != NULL:
        order.mail.deliver = deliver
        order.kind = kind
        order.driver = d
        add32(&d.refs, 1)
    return order


cdef void order_post(Order *order) noexcept nogil:
    inbox_post(&order.driver.out.reactor.inbox, &order.mail)


cdef void deliver(Mail *mail) noexcept nogil:
    cdef Order *order = <Order *> mail
    cdef Driver *d = order.driver
    cdef int32_t i
    driver_begin(d)
    if order.kind == ORDER_FOLLOW:
        follow(order)
    elif order.kind == ORDER_ATTACH:
        driver_attach(d, order.handle, order.fetch_version, order.offsets_version, order.broker_epoch)
    elif order.kind == ORDER_BROKER_EPOCH:
        d.fetcher.broker_epoch = order.broker_epoch
    elif order.kind == ORDER_LOSE:
        driver_lose(d, order.why)
    elif order.kind == ORDER_HOLD:
        outbound_hold(&d.out, order.holds_reads, order.holds_writes)
    elif order.kind == ORDER_SHUT:
        driver_shut(d)
    add64(&d.orders, 1)
    if order.kind in (ORDER_ATTACH, ORDER_LOOK):
        inbox_post(&d.bell, &d.news)
    driver_look(d)
    for i in range(order.count):
        partition_release(order.items[i].partition)
    free(order)
    driver_release(d)


cdef void follow(Order *order) noexcept nogil:
    cdef Driver *d = order.driver
    cdef OrderItem *item
    cdef int32_t i
    if d.is_shut:
        return
    d.fetcher.now_ms = d.out.reactor.wheel.now_ms
    for i in range(order.count):
        item = &order.items[i]
        if item.leader_epoch == NO_EPOCH:
            fetcher_stop(d.fetcher, item.partition)
        elif fetcher_follow(d.fetcher, item.partition, item.leader_epoch) < 0:
            driver_lose(d, LOST_NO_MEMORY)
