"""The checks that a leader performs on a batch before it appends the batch. They apply the rules of LogValidator
(Apache Kafka 4.3), without the GIL and without copying the batch.

First call `validate_batch`. If it returns 0 and sets `result.rewrite`, call `rewrite_batch`, which creates a batch with
another codec. If it returns 0 without setting `result.rewrite`, call `stamp_batch`, which corrects the timestamp type
and the maximum timestamp, and then the checksum. Finally, call `assign_offsets` under the partition's lock. This
function writes only bytes that the checksum does not cover.

The validation is stricter than LogValidator. It rejects an offset delta that is not the record's index. Kafka does not
check the deltas of an uncompressed batch, and corrects wrong deltas in a compressed batch. The validation rejects bytes
after the last whole batch, which Kafka drops. It returns INVALID_RECORD for a body that cannot be inflated (Kafka:
UNKNOWN_SERVER_ERROR). It always rejects a log append time that a producer has set. It limits the inflated size and the
compression ratio.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.record.record cimport BatchHeader, put32, put64

# The sender of a batch.
cdef enum AppendOrigin:
    ORIGIN_CLIENT = 0
    ORIGIN_COORDINATOR = 1       # a group or transaction coordinator, which may send control and transactional batches
    ORIGIN_RAFT_LEADER = 2       # the Raft leader, whose batch already has offsets and the epoch `rules.leader_epoch`
    ORIGIN_TRANSACTION = 3       # a client whose transaction is open, as the coordinator has verified (KIP-890)
    # The sender is a coordinator with transaction.version 2, and the batch is a marker with a new producer epoch
    # (KIP-1228).
    ORIGIN_BUMPED_MARKER = 4
    # Like ORIGIN_TRANSACTION, but with transaction.version 2. Each transaction of the producer has a new epoch, so the
    # producer's first batch in a partition has the sequence number 0.
    ORIGIN_BUMPED_TRANSACTION = 5


cdef inline bint is_from_client(int origin) noexcept nogil:
    """Returns whether the batch has a producer's sequence numbers, and not only a producer epoch."""
    return origin == ORIGIN_CLIENT or origin == ORIGIN_TRANSACTION or origin == ORIGIN_BUMPED_TRANSACTION


cdef enum:
    MAX_RECORD_ERRORS = 16       # a response names at most this many records
    TARGET_PRODUCER = -1         # compression.type=producer: the codec of the producer is kept

ctypedef struct ValidateRules:   # the rules of one partition, which apply to many batches
    InflateLimits limits
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int32_t max_message_bytes
    int32_t target_level         # LEVEL_DEFAULT, or Kafka's level of the target codec
    int32_t leader_epoch
    int8_t target_codec          # TARGET_PRODUCER, or a `CodecId` (context.pxd)
    int8_t timestamp_type        # a `TimestampType` (record.pxd)
    int8_t origin                # an `AppendOrigin`
    bint compacted
    bint transactional_allowed   # if false, a transactional batch of ORIGIN_CLIENT gets INVALID_TXN_STATE
    bint zstd_allowed            # Produce has version 7 or above (KIP-110)

# Faults that have their own metric.
cdef enum BatchFault:
    FAULT_NONE = 0               # the batch was accepted, or rejected for a reason without a metric
    FAULT_MAGIC = 1
    FAULT_CHECKSUM = 2
    FAULT_OFFSETS = 3            # a wrong offset of the batch or of a record, or a wrong sequence number
    FAULT_NO_KEY = 4             # a record without a key, in a compacted topic

ctypedef struct RecordError:
    int32_t batch_index          # the index of the record in the batch
    const char *message          # a static text

ctypedef struct ValidateResult:
    int16_t error                # a Kafka error code; 0 if accepted
    const char *message          # a static text; NULL if accepted
    int8_t fault                 # a `BatchFault`; the last one if there are several
    int32_t error_count          # the number of `errors`
    RecordError errors[MAX_RECORD_ERRORS]
    BatchHeader header           # the header as received
    int64_t max_timestamp        # for the log: the greatest timestamp of the records; with log append time, `now_ms`
    # The offset delta of the first record with that timestamp; with log append time, the offset delta of the last
    # record.
    int32_t max_timestamp_index
    int64_t log_append_time_ms   # -1 with create time
    int64_t body_bytes           # the size of the inflated records
    int8_t timestamp_type        # the timestamp type with which the log stores the batch
    int8_t codec                 # the codec with which the log stores the batch
    bint rewrite                 # the caller must call `rewrite_batch`, because `codec` is not the codec of the batch
    bint stamp                   # `stamp_batch` would change bytes

# Checks the records that a Produce has for one partition. They must be exactly one batch of magic 2. Returns
# `result.error`.
cdef int16_t validate_batch(
    const uint8_t *data, size_t size, const ValidateRules *rules, int64_t now_ms, CodecContext *context,
    ValidateResult *result
) noexcept nogil
# Appends the accepted batch with its new codec and timestamps to `out`. `out.limit` must leave room for all bytes that
# the codec may write (`rewrite_room`). Returns 0, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE or UNKNOWN_SERVER_ERROR.
cdef int16_t rewrite_batch(
    const uint8_t *data, size_t size, const ValidateRules *rules, const ValidateResult *result, CodecContext *context,
    Writer *out
) noexcept nogil
cdef size_t rewrite_room(const ValidateResult *result) noexcept nogil
cdef void stamp_batch(uint8_t *data, size_t size, const ValidateResult *result) noexcept nogil


cdef inline void assign_offsets(uint8_t *data, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    put64(data, base_offset)
    put32(data + 12, leader_epoch)


ctypedef struct BatchesResult:   # the result for bytes that a leader sent to a follower
    int16_t error
    const char *message
    int32_t batch_count
    # The size of the valid batches before the first batch that is incomplete or has an epoch above `leader_epoch`
    # (KAFKA-18723).
    size_t valid_bytes
    int64_t first_offset         # -1 if there is no batch
    int64_t last_offset
    int64_t max_timestamp
    int32_t last_leader_epoch

# Checks batches of any magic that a leader sent: their sizes, magic bytes and checksums, and whether the offsets
# increase. Returns `result.error`.
cdef int16_t check_batches(
    const uint8_t *data, size_t size, int32_t leader_epoch, BatchesResult *result
) noexcept nogil
