"""The errors that native code raises. `kafkacore.protocol.errors` contains these and all other errors of Kafka."""

from __future__ import annotations


class KafkaError(Exception):
    """Base of every error that has one of Kafka's error codes. `code` and `retriable` have the values of Kafka."""

    code: int = -1
    retriable: bool = False


class UnsupportedVersionError(KafkaError):
    """The chosen version of a message cannot carry a value, or this version does not exist."""

    code = 35


class CorruptBatchError(KafkaError, ValueError):
    """The bytes are not a batch, because the length, the magic byte or the body is impossible. The error code is
    CORRUPT_MESSAGE."""

    code = 2
    retriable = True


class InvalidRecordError(KafkaError, ValueError):
    """A record violates the record format. The error code is INVALID_RECORD."""

    code = 87


class ProtocolError(ValueError):
    """The bytes do not form a valid message, or a message cannot hold a value. The text of the error names the
    field."""


class ForkedNodeError(RuntimeError):
    """A native handle was used in a child process after fork.

    Create a node in the process that uses it, or start that process by exec.
    """
