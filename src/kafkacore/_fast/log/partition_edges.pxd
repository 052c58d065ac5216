"""Python's end of the queue of partitions whose ISR may have to change. One thread makes, drains and closes it;
partitions report from any thread."""

from kafkacore._fast.log.isr_edges cimport IsrEdges
from kafkacore._fast.world.environment cimport Environment


cdef class PartitionEdges:
    cdef IsrEdges *edges
    cdef Environment environment  # keeps the world alive that holds its bells
