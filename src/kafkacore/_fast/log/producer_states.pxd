"""Any thread may ask. The log's lock is held, without the GIL, while the states are copied."""

from kafkacore._fast.log.producers cimport Producer

cdef object state_of(const Producer *producer)
