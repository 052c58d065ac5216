"""Messages of magic 0 and 1, as segments of old releases keep them ("Old Message Format" in Kafka's documentation,
KIP-31, KIP-32). An entry is an offset, a size and a message; a compressed one has entries in its value.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Reader

ctypedef struct OldMessage:      # pointers into the bytes walked
    const uint8_t *key           # NULL with key_size -1 when null
    const uint8_t *value
    int64_t offset               # as stored: in a set of magic 1, relative to the set's first offset
    int64_t timestamp_ms         # -1 for magic 0
    int32_t key_size
    int32_t value_size
    uint32_t crc
    int8_t magic
    int8_t attributes
    bint valid                   # its checksum is right

# Reads the next entry. BATCH_OK; BATCH_SHORT when no whole entry is left; BATCH_BAD_RECORD.
cdef int next_message(Reader *entries, OldMessage *message) noexcept nogil
