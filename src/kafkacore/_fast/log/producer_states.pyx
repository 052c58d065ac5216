"""The state of a log's producers, for DescribeProducers."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free

from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.producers cimport Producer, producers_copy
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
