"""The Python interface of the queue of partitions whose ISR may have to change. One thread creates, drains and closes
the queue. Partitions report to it from any thread."""

from kafkacore._fast.log.isr_edges cimport IsrEdges
from kafkacore._fast.world.environment cimport Environment


cdef class PartitionEdges:
    cdef IsrEdges *edges
    cdef Environment environment  # kept alive because the inbox belongs to it
