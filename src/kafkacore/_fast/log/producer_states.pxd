"""Copies the state of a log's producers. Any thread may call the Python functions. They hold `Log.lock` while they
copy, but not the GIL.
"""

from kafkacore._fast.log.producers cimport Producer

cdef object state_of(const Producer *producer)
