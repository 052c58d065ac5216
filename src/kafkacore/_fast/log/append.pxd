"""Appends to a log. A batch is validated without the lock; under the lock it is checked against its producer, stamped,
written and noted."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.log cimport Log, LogConfig
from kafkacore._fast.wait.park cimport Waiter
from kafkacore._fast.log.producers cimport EndedTransaction
from kafkacore._fast.record.validate cimport BatchesResult, ValidateResult

ctypedef struct AppendInfo:
    int64_t first_offset
    int64_t last_offset
    int64_t log_append_time_ms           # -1 unless message.timestamp.type=LogAppendTime
    int64_t log_start_offset
    int64_t end_position                 # in the active segment's file
    bint duplicate                       # the log has this batch of an idempotent producer; first_offset is the old one
    ValidateResult validated             # names the invalid record of the batch

# A batch that passed validation: its bytes, in the caller's memory or rewritten with another codec.
ctypedef struct Prepared:
    uint8_t *data
    size_t size
    int origin                           # validate.pxd's AppendOrigin
    bint idempotent                      # has a producer id, and is checked against the producer's state
    Writer rewritten

cdef void append_info_init(AppendInfo *info) noexcept nogil

# Without the lock. Returns 0 or Kafka's error code; call `prepared_free` in both cases.
cdef int log_prepare(const LogConfig *config, int64_t now_ms, uint8_t *records, size_t size, int origin,
                     Prepared *prepared,
                     AppendInfo *info) noexcept nogil
cdef void prepared_free(Prepared *prepared) noexcept nogil

# Under the lock. Returns 0, Kafka's error code, or LOG_BLOCKED with `blocked` (may be NULL) queued: call again when it
# is woken.
cdef int log_append_prepared(Log *log, Prepared *prepared, int32_t leader_epoch, Waiter *blocked,
                             AppendInfo *info) noexcept nogil
# Appends whole batches whose offsets and epochs are set already, as a follower or a replicated log does. `checked`
# comes from check_batches.
cdef int log_append_checked(Log *log, const uint8_t *records, const BatchesResult *checked, Waiter *blocked,
                            AppendInfo *info) noexcept nogil

# Updates producers, transactions and leader epochs for a batch that is in the log; appends and recovery call it. 0 or
# -ENOMEM. `ended` is the transaction that the batch ended (last_offset -1: it ended no transaction).
cdef int log_note_state(Log *log, const uint8_t *batch, size_t size, EndedTransaction *ended) noexcept nogil
