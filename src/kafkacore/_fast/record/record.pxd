"""Record batches: the header as a struct, and the records as views, which point into the bytes of the batch. Reads and
writes magic 2. Reads magic 0 and 1 without converting them. In these formats, an entry takes the place of a batch. An
entry contains one message, or several compressed ones.

Memory is allocated only through a `Writer` (cursor.pxd): by a `BatchBuilder`, and for inflated records. "Record Batch"
and "Old Message Format" in Kafka's documentation describe the layout, as do KIP-98, KIP-32, KIP-82 and KIP-534 (delete
horizon).
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits
from kafkacore._fast.base.cursor cimport Reader, Writer, put32, put64

cdef enum:
    # The size of the fields base offset and length. `batch_length` counts the bytes after these two fields.
    LOG_OVERHEAD = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21           # the checksum of magic 2 covers the bytes from here on
    OLD_KEY_AT = 26              # magic 1: where the key of a message begins, after its timestamp
    TIMESTAMP_BYTES = 8          # the size of the timestamp; magic 0 has none
    HEADER_BYTES = 61            # the size of a batch header of magic 2
    LEAST_ENTRY_BYTES = 26       # LOG_OVERHEAD and an empty message of magic 0; no valid entry is smaller
    MAX_BATCH_BYTES = 0x7FFFFFFF  # includes LOG_OVERHEAD, so that the sizes of batches fit into 32 bits

cdef enum:
    NO_PRODUCER_ID = -1
    NO_PRODUCER_EPOCH = -1
    NO_SEQUENCE = -1
    NO_TIMESTAMP = -1
    NO_PARTITION_LEADER_EPOCH = -1

# The record of a control batch that ends a transaction (KIP-98). The key is a version and a type. The value is a
# version and the epoch of the coordinator.
cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1
    MARKER_KEY_BYTES = 4
    MARKER_VALUE_BYTES = 6

cdef enum BatchAttributes:
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40        # the base timestamp is the delete horizon (KIP-534)
    # The bits that Kafka defines. When `set_timestamps` changes a batch, it clears all other bits, as Kafka does.
    KNOWN_ATTRIBUTES = 0x7F

cdef enum TimestampType:
    TIMESTAMP_CREATE = 0
    TIMESTAMP_LOG_APPEND = 1

cdef enum BatchStatus:
    BATCH_OK = 0
    BATCH_SHORT = -1             # fewer bytes than the header needs
    BATCH_BAD_LENGTH = -2        # a length that a batch of this magic cannot have
    BATCH_BAD_MAGIC = -3
    BATCH_BAD_CRC = -4
    BATCH_BAD_RECORD = -5        # a malformed record
    BATCH_FULL = -6              # the batch has reached a limit of the builder
    BATCH_BAD_CODEC = -7         # the body cannot be inflated (`CodecStatus` in context.pxd), or the codec is unknown
    BATCH_TOO_LARGE = -8         # the inflated body exceeds its limits
    BATCH_NO_MEMORY = -9

ctypedef struct BatchHeader:
    int64_t base_offset          # magic 0 and 1: the offset of the entry; for a compressed set, this is the last offset
    int64_t base_timestamp       # magic 1: the timestamp of the entry; magic 0: NO_TIMESTAMP
    int64_t max_timestamp        # magic 0 and 1: the same as `base_timestamp`
    int64_t producer_id
    int32_t batch_length         # as stored: the number of bytes after this field
    # The size of the whole batch, LOG_OVERHEAD + `batch_length`. The size may exceed the number of available bytes.
    int32_t size_bytes
    int32_t partition_leader_epoch
    uint32_t crc
    int32_t last_offset_delta    # magic 0 and 1: 0
    int32_t base_sequence
    int32_t record_count         # magic 0 and 1: -1, because their headers have no count
    int16_t attributes
    int16_t producer_epoch
    int8_t magic

# Reads the header from the `available` bytes at `data`. 61 bytes are always enough; the rest of the batch may be
# missing. Returns BATCH_OK, BATCH_SHORT, BATCH_BAD_LENGTH or BATCH_BAD_MAGIC.
cdef int parse_header(const void *data, size_t available, BatchHeader *header) noexcept nogil
# Like `parse_header`, but also checks that the whole batch is available (else returns BATCH_SHORT) and that its
# checksum is right. The checksum is CRC-32C, or CRC-32 for magic 0 and 1.
cdef int check_batch(const void *data, size_t available, BatchHeader *header) noexcept nogil
# Returns the checksum that a whole batch of `size` bytes should have.
cdef uint32_t batch_checksum(const void *data, size_t size) noexcept nogil
# Writes the 61 bytes of a magic 2 header, with the checksum in `header`.
cdef void write_header(void *data, const BatchHeader *header) noexcept nogil


cdef inline int64_t add64_wrapping(int64_t a, int64_t b) noexcept nogil:
    """Adds two fields of a request. If the sum overflows, it wraps, as in Java."""
    return <int64_t> (<uint64_t> a + <uint64_t> b)


cdef inline int64_t last_offset(const BatchHeader *header) noexcept nogil:
    return add64_wrapping(header.base_offset, header.last_offset_delta)


cdef inline int batch_codec(const BatchHeader *header) noexcept nogil:
    return header.attributes & CODEC_MASK


cdef inline int timestamp_type(const BatchHeader *header) noexcept nogil:
    return TIMESTAMP_LOG_APPEND if header.attributes & LOG_APPEND_TIME else TIMESTAMP_CREATE


cdef inline bint is_transactional(const BatchHeader *header) noexcept nogil:
    return header.magic >= 2 and header.attributes & TRANSACTIONAL != 0


cdef inline bint is_control(const BatchHeader *header) noexcept nogil:
    return header.magic >= 2 and header.attributes & CONTROL != 0


cdef inline bint has_producer_id(const BatchHeader *header) noexcept nogil:
    return header.producer_id > NO_PRODUCER_ID


cdef inline int32_t add_sequence(int32_t sequence, int32_t increment) noexcept nogil:
    """Adds to a sequence number. Sequence numbers wrap from 2^31 - 1 to 0."""
    return <int32_t> ((<uint32_t> sequence + <uint32_t> increment) & 0x7FFFFFFF)


cdef inline int32_t last_sequence(const BatchHeader *header) noexcept nogil:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return add_sequence(header.base_sequence, header.last_offset_delta)


# The checksum covers neither the base offset nor the leader epoch. So it stays correct when an append sets them.
cdef inline void set_base_offset(void *data, int64_t base_offset) noexcept nogil:
    put64(data, base_offset)


cdef inline void set_leader_epoch(void *data, int32_t leader_epoch) noexcept nogil:
    put32(<uint8_t *> data + LOG_OVERHEAD, leader_epoch)


# Sets the timestamp type and the maximum timestamp in a whole batch of magic 2. If this changes a byte, also sets the
# checksum.
cdef void set_timestamps(void *data, size_t size, int timestamp_type, int64_t max_timestamp) noexcept nogil

ctypedef struct RecordView:      # its pointers point into the bytes that are read
    const uint8_t *key           # NULL for a null key, whose `key_size` is -1
    const uint8_t *value
    const uint8_t *headers       # `header_count` items of (varint size, key, varint size or -1, value); already checked
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size
    int32_t value_size
    int32_t header_count
    int32_t headers_size
    int8_t attributes


cdef inline int64_t record_offset(const BatchHeader *header, const RecordView *record) noexcept nogil:
    return add64_wrapping(header.base_offset, record.offset_delta)


cdef inline int64_t record_timestamp(const BatchHeader *header, const RecordView *record) noexcept nogil:
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return add64_wrapping(header.base_timestamp, record.timestamp_delta)


# Reads the next record of an (inflated) body of magic 2, and checks its bounds and headers. Returns BATCH_OK or
# BATCH_BAD_RECORD. At the end of the body, the reader is empty. The caller compares the number of records with
# `header.record_count`.
cdef int next_record(Reader *body, RecordView *record) noexcept nogil
# Reads the next header of a record. `headers` is a reader over the `headers_size` bytes at `record.headers`.
cdef int next_record_header(Reader *headers, RecordView *header) noexcept nogil  # sets the fields of key and value

ctypedef struct FoundRecord:
    int64_t offset
    int64_t timestamp
    bint found

# In a whole batch of magic 2, finds the first record with a timestamp >= `timestamp` and an offset >= `start_offset`
# (ListOffsets by time). Returns BATCH_OK whether or not such a record exists.
cdef int find_timestamp(
    const void *data, size_t size, int64_t timestamp, int64_t start_offset,
    CodecContext *context, const InflateLimits *limits, FoundRecord *found
) noexcept nogil
# Finds the first record with the greatest timestamp (ListOffsets -3).
cdef int find_max_timestamp(
    const void *data, size_t size, CodecContext *context, const InflateLimits *limits, FoundRecord *found
) noexcept nogil

# Inflates a compressed entry of magic 0 or 1, and writes its messages to the `Writer` `inflated`. The caller always
# frees `inflated`. In magic 1, the offsets of these messages are relative, and the offset of the last one corresponds
# to the entry's offset (KIP-31). So the caller must add `base_offset` to each offset. `base_offset` is 0 if the offsets
# are absolute, by the same rule as in Kafka.
cdef int open_wrapper(
    const uint8_t *data, const BatchHeader *header, CodecContext *context, const InflateLimits *limits,
    Writer *inflated, int64_t *base_offset
) noexcept nogil

ctypedef struct BatchBuilder:
    # The bytes of the batch: room for the header, then the records. `out.limit` is the largest size of a batch before
    # compression, in bytes.
    Writer out
    # Before `builder_close`, the caller sets the ids, the sequence number and the attribute bits, and with
    # LOG_APPEND_TIME also `header.max_timestamp`. With DELETE_HORIZON, the caller sets `base_timestamp` before the
    # first append.
    BatchHeader header
    int64_t max_timestamp        # the greatest timestamp of the records so far

cdef void builder_init(BatchBuilder *builder, size_t limit_bytes, int64_t base_offset) noexcept nogil
cdef void builder_free(BatchBuilder *builder) noexcept nogil
# Adds a record. `headers` are already encoded (see `RecordView.headers`). Offset deltas must increase. Returns
# BATCH_OK, BATCH_FULL (nothing was written) or BATCH_BAD_RECORD (an offset delta that does not increase, a timestamp
# below NO_TIMESTAMP, or a size below -1).
cdef int builder_append(
    BatchBuilder *builder, int32_t offset_delta, int64_t timestamp,
    const void *key, int32_t key_size, const void *value, int32_t value_size,
    const void *headers, int32_t headers_size, int32_t header_count
) noexcept nogil
# Compresses the records, and sets the lengths, the maximum timestamp, the codec bits and the checksum. `context` may be
# NULL if the codec is CODEC_NONE. Afterwards, `builder.out` contains the batch.
cdef int builder_close(BatchBuilder *builder, int codec, int level, CodecContext *context) noexcept nogil
