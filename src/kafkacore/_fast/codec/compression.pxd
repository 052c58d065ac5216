"""The Python interface of the codecs. Other extension classes share the context and the limits of a `Codec`."""

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits


cdef class Codec:
    cdef CodecContext *context
    cdef InflateLimits limits


# Returns the id of a codec. `codec` is its name or its number. For a number below 0, returns 255, which is no codec's
# id. Raises CodecError for an unknown name.
cdef int codec_id(codec) except -1
