"""The errors that native code raises. `kafkacore.protocol.errors` has these too, and all other errors of Kafka."""

from __future__ import annotations


class KafkaError(Exception):
    """Base of every error that has one of Kafka's error codes. `code` and `retriable` are Kafka's."""

    code: int = -1
    retriable: bool = False


class UnsupportedVersionError(KafkaError):
    """A value that the chosen version of a message cannot carry, or a version that does not exist."""

    code = 35


class CorruptBatchError(KafkaError, ValueError):
    """Bytes that are not a batch: an impossible length, magic byte or body. Kafka's CORRUPT_MESSAGE."""

    code = 2
    retriable = True


class InvalidRecordError(KafkaError, ValueError):
    """A record that breaks the format. Kafka's INVALID_RECORD."""

    code = 87


class ProtocolError(ValueError):
    """Bytes that are not the message they claim to be, or a value that no message can hold. Names the field."""


class ForkedNodeError(RuntimeError):
    """A native handle was used in a child process after fork.

    Make nodes in the process that uses them, or start it by exec.
    """
