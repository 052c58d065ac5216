from collections.abc import Iterator
from typing import Any, Final, Self

from typing_extensions import Buffer

from kafkacore._fast.record.record_source import RecordSource

class OffsetCommit(RecordSource):
    """An OffsetCommitRequest as it came, with what becomes of each of its partitions: found or not, accepted or not;
    then a source of their records, in the order in which they were asked for, and the answer.

    Topics are told by their number. `len` is how many partitions nothing was found to be wrong with.
    """

    API_KEY: Final = 8

    def __new__(cls, data: Buffer, version: int) -> Self:
        """Bytes behind the message are not looked at. Raises ProtocolError (as the message's class does),
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
        """Of its topics; empty where the request says an id that `find` has not been told of. Not to be changed."""
    error: int
    """Told of every partition but those that `find` and `refuse` have refused."""

    def message(self) -> Any:
        """The request as an OffsetCommitRequest, read anew."""

    def topic_id(self, number: int) -> bytes:
        """Zeros where none was said or found."""

    def find(self, number: int, name: str, topic_id: bytes, rows: Buffer, error: int) -> None:
        """The topic is this one. `rows`: of 32 bits, one for each partition that it has, below zero for one that is not
        there; what is asked for and is not is refused with `error`. Raises IndexError, ValueError."""

    def refuse(self, number: int, error: int) -> None:
        """All of a topic. Raises IndexError."""

    def partitions(self, number: int) -> list[int]:
        """Of a topic, those that were not refused. Raises IndexError."""

    def accepted(self, number: int) -> bool:
        """Whether there is one that was not. Raises IndexError."""

    def accept(self, now_ms: int, expire_timestamp: int, metadata_limit: int, error: int) -> None:
        """From now on it has records: committed `now_ms`, with -1 for no `expire_timestamp`. Refuses with `error` those
        whose metadata has more than `metadata_limit` characters as Java counts them."""

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]: ...
    def response(self, prefix: bytes) -> bytes:
        """`prefix` and an OffsetCommitResponse of the request's version."""
