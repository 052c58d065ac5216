"""Python's handle of a partition, for tests, punted requests and the metadata log.

A method that may wait for a device releases the GIL and every native lock while it waits.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.wait.io cimport LogDirectory
from kafkacore._fast.log.settings cimport LogSettings
from kafkacore._fast.log.partition cimport Partition


cdef class PartitionHandle:
    """Owns one count of a Partition."""
    cdef Partition *partition
    cdef readonly LogDirectory directory
    cdef readonly LogSettings settings  # as last configured

    cdef int make(self, LogDirectory directory, bytes name, int32_t index, bytes topic_id, bint named,
                  LogSettings settings) except -1
