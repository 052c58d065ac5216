"""The Python interface of validate.pxd."""

from kafkacore._fast.codec.compression cimport Codec
from kafkacore._fast.record.validate cimport ValidateRules


cdef class Validator:
    cdef ValidateRules rules
    cdef Codec codec
