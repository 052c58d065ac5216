"""Messages of magic 0 and 1, as segments of old releases store them ("Old Message Format" in Kafka's documentation,
KIP-31, KIP-32). An entry consists of an offset, a size and a message. The value of a compressed message contains
further entries.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Reader

ctypedef struct OldMessage:      # its pointers point into the bytes that are read
    const uint8_t *key           # NULL for a null key, whose `key_size` is -1
    const uint8_t *value
    int64_t offset               # as stored: inside a compressed set of magic 1, relative to the set's first offset
    int64_t timestamp_ms         # -1 for magic 0
    int32_t key_size
    int32_t value_size
    uint32_t crc
    int8_t magic
    int8_t attributes
    bint valid                   # whether its checksum is right

# Reads the next entry. Returns BATCH_OK, BATCH_SHORT if no whole entry is left, or BATCH_BAD_RECORD (record.pxd).
cdef int next_message(Reader *entries, OldMessage *message) noexcept nogil
