"""A leader's checks of a batch before it appends it: LogValidator's rules (Apache Kafka 4.3), in place, without the
GIL.

Use: call `validate_batch` first. If it returns 0 and sets `result.rewrite`, call `rewrite_batch`, which makes a batch
with another codec; otherwise call `stamp_batch`, which sets type and maximum timestamp where they differ, and the
checksum. Last, under the partition's lock, call `assign_offsets`, which writes only bytes that the checksum does not
cover.

It is stricter than LogValidator. It refuses an offset delta that is not the record's index in uncompressed batches too,
and repairs none. It refuses bytes after the last whole batch, which Kafka drops. It answers INVALID_RECORD for a body
that does not inflate (Kafka: UNKNOWN_SERVER_ERROR). It always refuses a log append time that a producer set. Inflated
size and ratio have limits.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.record.record cimport BatchHeader, put32, put64

cdef enum AppendOrigin:
    ORIGIN_CLIENT = 0
    ORIGIN_COORDINATOR = 1       # group and transaction coordinators: control and transactional batches allowed
    ORIGIN_RAFT_LEADER = 2       # sets offsets and epoch itself: the batch must carry rules.leader_epoch
    ORIGIN_TRANSACTION = 3       # a client, and the coordinator has verified that its transaction is open (KIP-890)
    ORIGIN_BUMPED_MARKER = 4     # a coordinator of transaction.version 2: its marker carries a new epoch (KIP-1228)

cdef enum:
    MAX_RECORD_ERRORS = 16       # the most records that the response names
    TARGET_PRODUCER = -1         # compression.type=producer: keep the producer's codec

ctypedef struct ValidateRules:   # of one partition; the same for many batches
    InflateLimits limits
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int32_t max_message_bytes
    int32_t target_level         # LEVEL_DEFAULT or Kafka's level of the target codec
    int32_t leader_epoch
    int8_t target_codec          # TARGET_PRODUCER or a CodecId
    int8_t timestamp_type        # TimestampType
    int8_t origin                # AppendOrigin
    bint compacted
    bint transactional_allowed   # if not, a transactional batch of ORIGIN_CLIENT is INVALID_TXN_STATE
    bint zstd_allowed            # Produce >= 7 (KIP-110)

ctypedef struct RecordError:
    int32_t batch_index          # index of the record in the batch
    const char *message          # static text

ctypedef struct ValidateResult:
    int16_t error                # Kafka's error code, 0 = accepted
    const char *message          # static text, NULL when accepted
    int32_t error_count          # entries of `errors`
    RecordError errors[MAX_RECORD_ERRORS]
    BatchHeader header           # as it came
    int64_t max_timestamp        # to be stored: the greatest of the records, or now_ms with log append time
    int32_t max_timestamp_index  # the first record (its offset delta) that has it; the last with log append time
    int64_t log_append_time_ms   # -1 with create time
    int64_t body_bytes           # of the records, inflated
    int8_t timestamp_type        # to be stored
    int8_t codec                 # to be stored
    bint rewrite                 # rewrite_batch must be called: codec is not the batch's own
    bint stamp                   # stamp_batch would change bytes

# Checks a Produce's `records` for one partition: they must be exactly one batch of magic 2. Returns result.error.
cdef int16_t validate_batch(
    const uint8_t *data, size_t size, const ValidateRules *rules, int64_t now_ms, CodecContext *context,
    ValidateResult *result
) noexcept nogil
# Appends the accepted batch with its new codec and timestamps to `out`. The limit of `out` must leave room for the most
# that the codec may write (rewrite_room). 0, MESSAGE_TOO_LARGE or UNKNOWN_SERVER_ERROR.
cdef int16_t rewrite_batch(
    const uint8_t *data, size_t size, const ValidateRules *rules, const ValidateResult *result, CodecContext *context,
    Writer *out
) noexcept nogil
cdef size_t rewrite_room(const ValidateResult *result) noexcept nogil
cdef void stamp_batch(uint8_t *data, size_t size, const ValidateResult *result) noexcept nogil


cdef inline void assign_offsets(uint8_t *data, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    put64(data, base_offset)
    put32(data + 12, leader_epoch)


ctypedef struct BatchesResult:   # of the bytes that a leader sent to a follower
    int16_t error
    const char *message
    int32_t batch_count
    size_t valid_bytes           # whole batches, up to one of a higher epoch (KAFKA-18723) or a partial tail
    int64_t first_offset         # -1 when there is none
    int64_t last_offset
    int64_t max_timestamp
    int32_t last_leader_epoch

# Checks batches as a leader sent them (any magic): sizes, magic, checksums, and that offsets grow. Returns
# result.error.
cdef int16_t check_batches(
    const uint8_t *data, size_t size, int32_t leader_epoch, BatchesResult *result
) noexcept nogil
