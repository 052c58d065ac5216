"""The Python face of `validate`."""

from kafkacore._fast.compression cimport Codec
from kafkacore._fast.validate cimport ValidateRules


cdef class Validator:
    cdef ValidateRules rules
    cdef Codec codec
