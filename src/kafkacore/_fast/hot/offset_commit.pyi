from collections.abc import Iterator
from typing import Any, Final, Self

from typing_extensions import Buffer

from kafkacore._fast.record.record_source import RecordSource

class OffsetCommit(RecordSource):
    """An OffsetCommitRequest. It records for each partition whether the partition exists and whether its commit is
    accepted. Then it yields the records for the log, in the order of the request, and writes the answer.

    `number` is the index of a topic in the request. `len` is the number of partitions without an error.
    """

    API_KEY: Final = 8

    def __new__(cls, data: Buffer, version: int) -> Self:
        """Parses a request. Ignores bytes after the message. Raises ProtocolError, as the message's class does, and
        UnsupportedVersionError. If the request has many topics, decodes only the texts of the first ones."""

    @property
    def is_read(self) -> bool:
        """Whether the texts of all topics are decoded. All other methods except `topic_id` and `message` need this."""

    def read_more(self) -> None:
        """Decodes the texts of some more topics. This takes less than a millisecond, unless the topics have thousands
        of partitions. Raises ProtocolError."""

    @property
    def version(self) -> int: ...
    @property
    def group_id(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def generation_id_or_member_epoch(self) -> int: ...
    @property
    def retention_time_ms(self) -> int: ...
    @property
    def names(self) -> list[str]:
        """The names of the topics whose texts are decoded. A name is empty if the request has a topic id that `find`
        has not resolved yet. Do not change the list."""
    error: int
    """The error of every partition that `find` and `refuse` have not refused."""

    def message(self) -> Any:
        """Decodes the request again, and returns it as an OffsetCommitRequest object."""

    def topic_id(self, number: int) -> bytes:
        """Returns the id of a topic. The id is all zeros if neither the request nor `find` has set it."""

    def find(self, number: int, name: str, topic_id: bytes, rows: Buffer, error: int) -> None:
        """Resolves a topic. `rows` has one int32 for each partition of the topic. An int32 below zero means that the
        partition does not exist. Requested partitions that do not exist get `error`. Raises IndexError and
        ValueError."""

    def refuse(self, number: int, error: int) -> None:
        """Refuses all partitions of a topic. Raises IndexError."""

    def partitions(self, number: int) -> list[int]:
        """Returns the partitions of a topic that were not refused. Raises IndexError."""

    def accepted(self) -> list[int]:
        """Returns the numbers of the topics of which at least one partition was not refused."""

    def accept(self, now_ms: int, expire_timestamp: int, metadata_limit: int, error: int) -> None:
        """Makes the records available, with the commit timestamp `now_ms`. An `expire_timestamp` of -1 means no expiry.
        If the metadata of a partition has more than `metadata_limit` characters, as Java counts them, refuses the
        partition with `error`."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]: ...
    def response(self, prefix: bytes) -> bytes:
        """Returns `prefix`, followed by an OffsetCommitResponse of the request's version."""
