"""The Python face of `codec`; other faces share its context and limits."""

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits


cdef class Codec:
    cdef CodecContext *context
    cdef InflateLimits limits


# A codec's id from its name or id (255 where a number is none); raises CodecError for an unknown name.
cdef int codec_id(codec) except -1
