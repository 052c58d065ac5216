"""Sums the counts of partitions (traffic.pxd) for metrics. Also counts the responses and the failed Fetches of the
handler loop, the event loop on which Python code answers requests."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport load64
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.traffic cimport Traffic, traffic_failed, traffic_sent

from typing import NamedTuple


class TrafficCounts(NamedTuple):
    """The sums of the counts of several partitions. `traffic.pxd` gives the meaning of each field."""

    produces: int = 0
    failed_produces: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    bytes_rejected: int = 0
    conversions: int = 0
    no_key: int = 0
    bad_magic: int = 0
    bad_checksum: int = 0
    bad_offsets: int = 0
    replication_in: int = 0
    reassignment_in: int = 0
    fetches: int = 0
    failed_fetches: int = 0
    bytes_out: int = 0
    replication_out: int = 0
    reassignment_out: int = 0


cdef void add(Partition *p, Traffic *total) noexcept nogil:
    cdef Traffic *t = &p.traffic
    mutex_lock(&p.log.lock)
    total.produces += t.produces
    total.failed_produces += t.failed_produces
    total.messages_in += t.messages_in
    total.bytes_in += t.bytes_in
    total.bytes_rejected += t.bytes_rejected
    total.conversions += t.conversions
    total.no_key += t.no_key
    total.bad_magic += t.bad_magic
    total.bad_checksum += t.bad_checksum
    total.bad_offsets += t.bad_offsets
    total.replication_in += t.replication_in
    total.reassignment_in += t.reassignment_in
    total.fetches += t.fetches
    mutex_unlock(&p.log.lock)
    total.failed_fetches += load64(&t.failed_fetches)
    total.bytes_out += load64(&t.bytes_out)
    total.replication_out += load64(&t.replication_out)
    total.reassignment_out += load64(&t.reassignment_out)


def traffic_of(partitions):
    cdef tuple held = tuple(partitions)
    cdef Py_ssize_t i, count = len(held)
    cdef Traffic t
    cdef Partition **natives = <Partition **> malloc(max(count, 1) * sizeof(Partition *))
    if natives == NULL:
        raise MemoryError
    memset(&t, 0, sizeof(Traffic))
    try:
        for i in range(count):
            natives[i] = (<PartitionHandle?> held[i]).partition
        with nogil:
            for i in range(count):
                add(natives[i], &t)
    finally:
        free(natives)
    return TrafficCounts(
        t.produces, t.failed_produces, t.messages_in, t.bytes_in, t.bytes_rejected, t.conversions, t.no_key,
        t.bad_magic, t.bad_checksum, t.bad_offsets, t.replication_in, t.reassignment_in, t.fetches, t.failed_fetches,
        t.bytes_out, t.replication_out, t.reassignment_out,
    )


def count_sent(PartitionHandle partition not None, int64_t size_bytes, bint to_follower, bint to_added):
    traffic_sent(&partition.partition.traffic, size_bytes, to_follower, to_added)


def count_failed(PartitionHandle partition not None, int error):
    traffic_failed(&partition.partition.traffic, error)
