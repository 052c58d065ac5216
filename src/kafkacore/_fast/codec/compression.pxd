"""The Python face of the codecs; other Python classes share its context and limits."""

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits


cdef class Codec:
    cdef CodecContext *context
    cdef InflateLimits limits


# A codec's id from its name or number (255 for a number below 0); raises CodecError for an unknown name.
cdef int codec_id(codec) except -1
