"""Implements traffic.pxd: the counts of a partition (BrokerTopicMetrics; ReplicaManager.appendToLocalLog and
readFromLog)."""

from libc.stdint cimport int64_t

from kafkacore._fast.base.atomics cimport add64
from kafkacore._fast.base.error_codes cimport (
    CORRUPT_MESSAGE, FENCED_LEADER_EPOCH, INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE,
    NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, RECORD_LIST_TOO_LARGE, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkacore._fast.record.validate cimport FAULT_CHECKSUM, FAULT_MAGIC, FAULT_NO_KEY, FAULT_OFFSETS


cdef void traffic_produced(Traffic *traffic, int error, int64_t size_bytes, int64_t messages,
                           const ValidateResult *validated) noexcept nogil:
    traffic.produces += 1
    if error == 0:
        traffic.bytes_in += size_bytes
        traffic.messages_in += messages
        if validated.rewrite:
            traffic.conversions += validated.header.record_count
        return
    if error == MESSAGE_TOO_LARGE:
        traffic.bytes_rejected += size_bytes
    # Kafka's metric counts only failures that clients do not expect.
    elif error not in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE,
                       KAFKA_STORAGE_ERROR):
        traffic.failed_produces += 1
    if validated.fault == FAULT_NO_KEY:
        traffic.no_key += 1
    elif validated.fault == FAULT_MAGIC:
        traffic.bad_magic += 1
    elif validated.fault == FAULT_CHECKSUM:
        traffic.bad_checksum += 1
    elif validated.fault == FAULT_OFFSETS:
        traffic.bad_offsets += 1


cdef void traffic_failed(Traffic *traffic, int error) noexcept nogil:
    if error not in (0, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH,
                     FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID, OFFSET_OUT_OF_RANGE):
        add64(&traffic.failed_fetches, 1)


cdef void traffic_sent(Traffic *traffic, int64_t size_bytes, bint to_follower, bint to_added) noexcept nogil:
    if not to_follower:
        add64(&traffic.bytes_out, size_bytes)
        return
    add64(&traffic.replication_out, size_bytes)
    if to_added:
        add64(&traffic.reassignment_out, size_bytes)
