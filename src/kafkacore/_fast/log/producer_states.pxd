"""Any thread; takes the log's lock without the GIL, for as long as a copy of the states takes."""

from kafkacore._fast.log.producers cimport Producer

cdef object state_of(const Producer *producer)
