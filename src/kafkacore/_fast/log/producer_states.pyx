"""Copies the state of a log's producers, for DescribeProducers and for metrics."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.producers cimport Producer, Producers, producers_copy, producers_find
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

from typing import NamedTuple


class ProducerState(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


cdef object state_of(const Producer *producer):
    cdef int32_t last_sequence = -1
    if producer.batch_count:
        last_sequence = producer.batches[producer.batch_count - 1].last_sequence
    return ProducerState(
        producer.producer_id, producer.producer_epoch, last_sequence, producer.last_timestamp_ms,
        producer.coordinator_epoch, producer.transaction_first_offset,
    )


def producer_states(PartitionHandle handle not None):
    cdef Producer *copies = NULL
    cdef int32_t count = 0, i
    with nogil:
        mutex_lock(&handle.partition.log.lock)
        if handle.partition.log.producers != NULL:
            copies = producers_copy(handle.partition.log.producers, &count)
        mutex_unlock(&handle.partition.log.lock)
    if copies == NULL:
        if count:
            raise MemoryError
        return []
    try:
        return [state_of(&copies[i]) for i in range(count)]
    finally:
        free(copies)


cdef int64_t oldest_open_ms(Producers *producers) noexcept nogil:
    """Finds the producer whose transaction has been open longest, and returns the time of this producer's last batch.
    Returns -1 if no transaction is open. Call this with the lock held."""
    cdef Producer *producer
    cdef int32_t i
    for i in range(producers.transaction_count):
        if producers.transactions[i].last_offset < 0:
            producer = producers_find(producers, producers.transactions[i].producer_id)
            return producer.last_timestamp_ms if producer != NULL else -1
    return -1


def producer_counts(PartitionHandle handle not None):
    cdef Producers *producers
    cdef int32_t count = 0
    cdef int64_t oldest_ms = -1
    with nogil:
        mutex_lock(&handle.partition.log.lock)
        producers = handle.partition.log.producers
        if producers != NULL:
            count = producers.count
            oldest_ms = oldest_open_ms(producers)
        mutex_unlock(&handle.partition.log.lock)
    return count, oldest_ms
