"""The errors of the client. Each message names the partition and the offsets concerned, which are also attributes of
the error."""

from __future__ import annotations

from kafkacore._fast.base.uuid import Uuid
from kafkacore.protocol.errors import ErrorCode, KafkaError


class ClientError(KafkaError):
    """Base of the client's own errors."""


class OptionError(ValueError):
    """An option is unknown, malformed or not supported. The message names the option and the allowed values."""


class Unreachable(ClientError):
    """No broker answered in time, or no broker could be reached."""

    code = int(ErrorCode.NETWORK_EXCEPTION)
    retriable = True


class ServerNotTrusted(ClientError):
    """A broker's certificate does not match the trust store or the broker's name. A retry would not help."""

    code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)


class TopicMissing(ClientError):
    """The topic does not exist."""

    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist")
        self.topic = topic


class PartitionMissing(ClientError):
    """The topic exists, but has no such partition."""

    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(f"topic {topic} has {count} partitions, so it has no partition {partition}")
        self.topic, self.partition = topic, partition


class TopicRecreated(ClientError):
    """The requested topic has been deleted. Its name now belongs to another topic."""

    code = int(ErrorCode.INCONSISTENT_TOPIC_ID)

    def __init__(self, topic: str, expected: Uuid, found: Uuid) -> None:
        super().__init__(f"topic {topic} was deleted and created again: its id was {expected} and is {found} now")
        self.topic, self.expected, self.found = topic, expected, found


class OffsetOutOfRange(ClientError):
    """Some records of the range were deleted or are not written yet. The leader's log extends from `log_start` to
    `log_end`."""

    code = int(ErrorCode.OFFSET_OUT_OF_RANGE)

    def __init__(self, topic: str, partition: int, offset: int, end: int, log_start: int, log_end: int) -> None:
        super().__init__(
            f"{topic}-{partition}: the records from offset {offset} to {end} are not all there: the log has "
            f"{log_start} to {log_end}"
        )
        self.topic, self.partition = topic, partition
        self.offset, self.end, self.log_start, self.log_end = offset, end, log_start, log_end


class RecordTooLarge(ClientError):
    """A record is larger than max.request.size, or larger than the topic or the broker allows."""

    code = int(ErrorCode.MESSAGE_TOO_LARGE)
