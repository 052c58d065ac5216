from collections.abc import Iterator
from typing import Any, Final, Self

from typing_extensions import Buffer

from kafkacore._fast.record.record_source import RecordSource

class OffsetCommit(RecordSource):
    """An OffsetCommitRequest and the fate of each of its partitions: found or not, accepted or not. Then it is a source
    of their records, in the order of the request, and writes the answer.

    Methods take topics by their number. `len` is the number of partitions without an error.
    """

    API_KEY: Final = 8

    def __new__(cls, data: Buffer, version: int) -> Self:
        """Ignores bytes behind the message. Raises ProtocolError (as the message's class does),
        UnsupportedVersionError."""

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
        """The names of its topics; empty for a topic id that `find` has not resolved yet. Do not change it."""
    error: int
    """The error of every partition, except those that `find` and `refuse` have refused."""

    def message(self) -> Any:
        """The request as an OffsetCommitRequest, read anew."""

    def topic_id(self, number: int) -> bytes:
        """Zeros when the request has no id and `find` gave none."""

    def find(self, number: int, name: str, topic_id: bytes, rows: Buffer, error: int) -> None:
        """Resolves a topic. `rows`: 32 bits for each of its partitions, below zero for a partition that does not exist.
        Refuses requested partitions that do not exist with `error`. Raises IndexError, ValueError."""

    def refuse(self, number: int, error: int) -> None:
        """Refuses all partitions of a topic. Raises IndexError."""

    def partitions(self, number: int) -> list[int]:
        """The partitions of a topic that were not refused. Raises IndexError."""

    def accepted(self, number: int) -> bool:
        """Whether a partition of the topic was not refused. Raises IndexError."""

    def accept(self, now_ms: int, expire_timestamp: int, metadata_limit: int, error: int) -> None:
        """Makes the records available, committed at `now_ms`; `expire_timestamp` -1 means no expiry. Refuses partitions
        with `error` whose metadata has more than `metadata_limit` characters as Java counts them."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]: ...
    def response(self, prefix: bytes) -> bytes:
        """`prefix` and an OffsetCommitResponse of the request's version."""
