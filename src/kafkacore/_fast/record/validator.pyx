"""A leader's checks of a produced batch, and a follower's checks of fetched bytes, for Python."""

from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kafkacore._fast.codec.context cimport LEVEL_DEFAULT
from kafkacore._fast.codec.compression cimport Codec, codec_id
from kafkacore._fast.base.cursor cimport Writer, writer_free, writer_init
from kafkacore._fast.record.record cimport HEADER_BYTES
from kafkacore._fast.record.validate cimport (
    ORIGIN_CLIENT, ORIGIN_COORDINATOR, ORIGIN_RAFT_LEADER, TARGET_PRODUCER, BatchesResult, ValidateResult,
    assign_offsets, check_batches, rewrite_batch, rewrite_room, stamp_batch, validate_batch,
)

ORIGINS = {"client": ORIGIN_CLIENT, "coordinator": ORIGIN_COORDINATOR, "raft": ORIGIN_RAFT_LEADER}


class Verdict(NamedTuple):
    """The result of a check of a batch. `error` is a Kafka error code, 0 for success. The items of `record_errors` are
    (index, message)."""

    error: int
    message: str | None
    record_errors: tuple[tuple[int, str], ...]
    data: bytes | None
    record_count: int
    max_timestamp: int
    max_timestamp_index: int
    log_append_time_ms: int
    body_bytes: int
    rewritten: bool


class Followed(NamedTuple):
    """The result of a check of a leader's response. It describes the whole batches at the start of the response, up to
    the first fault."""

    error: int
    message: str | None
    batch_count: int
    valid_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    last_leader_epoch: int


cdef text(const char *message):
    return None if message == NULL else message.decode()


cdef verdict(const ValidateResult *result, data):
    return Verdict(
        result.error,
        text(result.message),
        tuple([(result.errors[i].batch_index, text(result.errors[i].message)) for i in range(result.error_count)]),
        data,
        result.header.record_count,
        result.max_timestamp,
        result.max_timestamp_index,
        result.log_append_time_ms,
        result.body_bytes,
        result.rewrite,
    )


cdef class Validator:
    """The rules of one partition for produced batches.

    Args:
        compacted: whether cleanup.policy includes compact, so that every record needs a key.
        log_append_time: whether message.timestamp.type is LogAppendTime.
        timestamp_before_max_ms: message.timestamp.before.max.ms.
        timestamp_after_max_ms: message.timestamp.after.max.ms.
        max_message_bytes: max.message.bytes.
        compression: compression.type.
        level: as in Kafka's compression.*.level.
        origin: client, coordinator or raft.
        codec: has the limits of inflated bodies and the codec contexts; only one thread at a time may use it.
    """

    def __init__(
        self, *, bint compacted=False, bint log_append_time=False, int64_t timestamp_before_max_ms=INT64_MAX,
        int64_t timestamp_after_max_ms=3600000, int32_t max_message_bytes=1048588, compression="producer", level=None,
        origin="client", int32_t leader_epoch=0, bint transactional_allowed=False, bint zstd_allowed=True, codec=None
    ):
        self.codec = Codec() if codec is None else codec
        rules = &self.rules
        rules.limits = self.codec.limits
        rules.timestamp_before_max_ms = timestamp_before_max_ms
        rules.timestamp_after_max_ms = timestamp_after_max_ms
        rules.max_message_bytes = max_message_bytes
        rules.target_level = LEVEL_DEFAULT if level is None else level
        rules.leader_epoch = leader_epoch
        if compression == "producer":
            rules.target_codec = TARGET_PRODUCER
        else:
            rules.target_codec = codec_id("none" if compression == "uncompressed" else compression)
        rules.timestamp_type = log_append_time
        rules.origin = ORIGINS[origin]
        rules.compacted = compacted
        rules.transactional_allowed = transactional_allowed
        rules.zstd_allowed = zstd_allowed

    def check(self, data, int64_t now_ms):
        """Checks a batch. Returns the verdict without the bytes. Does not change `data`."""
        cdef ValidateResult result
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            validate_batch(<const uint8_t *> view.buf, view.len, &self.rules, now_ms, self.codec.context, &result)
        PyBuffer_Release(&view)
        return verdict(&result, None)

    def accept(self, data, int64_t now_ms, int64_t base_offset):
        """Checks a batch. If the batch is accepted, the verdict has the bytes that the log stores, with offsets."""
        cdef ValidateResult result
        cdef Writer out
        stored = bytearray(data)
        cdef uint8_t[::1] view = stored
        cdef const uint8_t *start = &view[0] if len(stored) else NULL
        cdef size_t size = len(stored)
        with nogil:
            validate_batch(start, size, &self.rules, now_ms, self.codec.context, &result)
        if result.error:
            return verdict(&result, None)
        if not result.rewrite:
            stamp_batch(&view[0], size, &result)
            assign_offsets(&view[0], base_offset, self.rules.leader_epoch)
            return verdict(&result, bytes(stored))
        writer_init(&out, HEADER_BYTES + rewrite_room(&result))
        try:
            with nogil:
                result.error = rewrite_batch(start, size, &self.rules, &result, self.codec.context, &out)
            if result.error:
                result.message = b"The batch in its new codec is larger than max.message.bytes, or could not be made."
                return verdict(&result, None)
            assign_offsets(out.data, base_offset, self.rules.leader_epoch)
            return verdict(&result, PyBytes_FromStringAndSize(<const char *> out.data, out.size))
        finally:
            writer_free(&out)


def follow(data, int32_t leader_epoch):
    """Checks a leader's response to a Fetch: sizes, magic bytes and checksums, and that offsets increase. See
    Followed."""
    cdef BatchesResult result
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        check_batches(<const uint8_t *> view.buf, view.len, leader_epoch, &result)
    PyBuffer_Release(&view)
    return Followed(
        result.error, text(result.message), result.batch_count, result.valid_bytes, result.first_offset,
        result.last_offset, result.max_timestamp, result.last_leader_epoch,
    )
