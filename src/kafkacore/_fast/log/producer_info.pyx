"""What a log remembers of its producers, for Python (DescribeProducers)."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.producers cimport Producer, Producers
from kafkacore._fast.record.record cimport NO_PRODUCER_EPOCH, NO_SEQUENCE
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

from typing import NamedTuple


class ProducerInfo(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


cdef Producer *copy_all(const Producers *producers, int32_t *count) noexcept nogil:
    """malloc'ed, under the log's lock; NULL: no memory."""
    cdef Producer *copies = <Producer *> malloc(((producers.count if producers != NULL else 0) + 1) * sizeof(Producer))
    cdef Producer *producer
    cdef int32_t i
    count[0] = 0
    if copies == NULL or producers == NULL:
        return copies
    for i in range(producers.bucket_mask + 1):
        producer = producers.buckets[i]
        while producer != NULL:
            if producer.producer_epoch != NO_PRODUCER_EPOCH:
                copies[count[0]] = producer[0]
                count[0] += 1
            producer = producer.chain
    return copies


def producers_of(PartitionHandle handle not None):
    """A ProducerInfo of each, by producer id."""
    cdef list found = []
    cdef Producer *copies
    cdef int32_t count = 0
    cdef int32_t i
    with nogil:
        mutex_lock(&handle.partition.log.lock)
        copies = copy_all(handle.partition.log.producers, &count)
        mutex_unlock(&handle.partition.log.lock)
    if copies == NULL:
        raise MemoryError
    for i in range(count):
        sequence = copies[i].batches[copies[i].batch_count - 1].last_sequence if copies[i].batch_count else NO_SEQUENCE
        found.append(ProducerInfo(copies[i].producer_id, copies[i].producer_epoch, sequence,
                                  copies[i].last_timestamp_ms, copies[i].coordinator_epoch,
                                  copies[i].transaction_first_offset))
    free(copies)
    return sorted(found)
