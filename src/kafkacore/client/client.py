"""The client that the package provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from kafkacore._fast.columns.record_columns import COLUMNS, ArrowRows
from kafkacore.client.cluster import Cluster
from kafkacore.client.errors import ClientError, OptionError
from kafkacore.client.options import Options
from kafkacore.client.positions import ISOLATION, list_offsets
from kafkacore.client.producer import Producer
from kafkacore.client.reader import Reader, ReadLimits
from kafkacore.client.types import Offset, Range, Topic


class Client:
    """A client of one cluster. Its calls block. Use it on one thread at a time, and close it.

    A call fails after default.api.timeout.ms without progress. The client keeps its connections and its metadata
    between calls.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, object] | None = None) -> None:
        """`options` sets Kafka's client keys (`kafkacore.client.options`). The client connects with its first call.

        Raises OptionError.
        """
        self.options = Options(options or {})
        self._servers = bootstrap_servers
        self._cluster = Cluster(bootstrap_servers, self.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. A later call opens new ones."""
        self._cluster.close()

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """Requests the metadata of the named topics, or of all topics that the client is allowed to see.

        Raises TopicMissing, Unreachable, and KafkaError, such as TopicAuthorizationFailedError.
        """
        return self._cluster.topics(names)

    def offsets(
        self, wanted: Mapping[tuple[str, int], int], isolation_level: str | None = None
    ) -> dict[tuple[str, int], Offset]:
        """Returns an offset for each topic and partition. The value in `wanted` is EARLIEST, LATEST, or a time in ms
        since the epoch, which stands for the first record at or after this time. With read_committed, LATEST is the
        last stable offset.

        Raises TopicMissing, PartitionMissing, Unreachable and KafkaError.
        """
        return list_offsets(self._cluster, wanted, self._isolation(isolation_level), self._cluster.deadline())

    def read(
        self,
        ranges: Sequence[Range],
        columns: Sequence[str] = COLUMNS,
        isolation_level: str | None = None,
        *,
        max_rows: int = ReadLimits().max_rows,
        max_bytes: int = ReadLimits().max_bytes,
        on_lost: Callable[[ClientError], None] | None = None,
    ) -> Iterator[ArrowRows]:
        """Yields the records of the ranges as Arrow batches. Each batch contains records of one partition, in the order
        of their offsets.

        Args:
            columns: names from COLUMNS.
            max_rows, max_bytes: the limits of a batch; a larger record is alone in its batch.
            on_lost: called with OffsetOutOfRange, TopicRecreated, TopicMissing or PartitionMissing when records of a
                range are missing; the client then reads the remaining records. Without `on_lost`, the error is raised.

        Raises: OffsetOutOfRange: records of a range were deleted, or are not written yet. TopicRecreated: the topic's
        id differs from the range's `topic_id`, or changed during the read. TopicMissing, PartitionMissing: no broker
        named the topic or the partition within default.api.timeout.ms. Unreachable, CorruptBatchError,
        InvalidRecordError, KafkaError.
        """
        limits = ReadLimits(max_rows, max_bytes)
        return iter(Reader(self._cluster, ranges, columns, self._isolation(isolation_level), limits, on_lost))

    def producer(self, options: Mapping[str, object] | None = None) -> Producer:
        """Returns an idempotent producer that uses this client's connections. With transactional.id it is
        transactional. `options` are added to the client's options. Do not read and write with one client at the same
        time.

        Raises OptionError.
        """
        return Producer(self._cluster, self.options.with_given(options or {}))

    def _isolation(self, given: str | None) -> str:
        level = self.options["isolation.level"] if given is None else given
        if level not in ISOLATION:
            raise OptionError(f"isolation.level is {level!r}, but must be one of {', '.join(ISOLATION)}")
        return str(level)
