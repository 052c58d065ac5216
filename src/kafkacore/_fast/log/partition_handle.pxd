"""The Python handle of a partition, for tests, for requests that native code passes on to Python, and for the metadata
log.

A method that can wait for the disk releases the GIL and every native lock while it waits.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.wait.io cimport LogDirectory
from kafkacore._fast.log.settings cimport LogSettings
from kafkacore._fast.log.partition cimport Partition


cdef class PartitionHandle:
    """Holds one reference to a `Partition`."""
    cdef Partition *partition
    cdef readonly LogDirectory directory
    cdef readonly LogSettings settings  # the settings of the last `configure`

    cdef int make(self, LogDirectory directory, bytes name, int32_t index, bytes topic_id, bint named,
                  LogSettings settings) except -1
