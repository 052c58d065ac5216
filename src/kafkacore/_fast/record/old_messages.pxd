"""Reads the messages in one entry (record.pxd) of magic 0 or 1 in a log, one by one. A compressed entry contains
several messages. Any other entry is one message (Kafka's AbstractLegacyRecordBatch).
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.record.record cimport BatchHeader

ctypedef struct OldMessages:
    const BatchHeader *entry
    const uint8_t *data
    size_t size
    size_t at
    int64_t base_offset    # must be added to the inner offsets; 0 if they are absolute
    Writer inflated

ctypedef struct OldMessage:
    const uint8_t *key     # NULL for a null key, whose `key_size` is -1
    const uint8_t *value
    int64_t offset
    int64_t timestamp      # NO_TIMESTAMP in magic 0
    int32_t key_size
    int32_t value_size

# Begins to read an entry. Returns a `BatchStatus` (record.pxd). Call `old_messages_close` afterwards, even after an
# error.
cdef int old_messages_open(OldMessages *messages, const uint8_t *entry, const BatchHeader *header,
                           CodecContext *context, const InflateLimits *limits) noexcept nogil
cdef bint old_messages_more(const OldMessages *messages) noexcept nogil
cdef int old_messages_next(OldMessages *messages, OldMessage *message) noexcept nogil  # returns a `BatchStatus`
cdef void old_messages_close(OldMessages *messages) noexcept nogil
