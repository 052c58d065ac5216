"""Copies the state of a log's producers. Any thread may call this. It holds the log's lock during the copy, but not the
GIL."""

from kafkacore._fast.log.producers cimport Producer

cdef object state_of(const Producer *producer)
