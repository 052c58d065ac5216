"""Encodes Arrow columns as record batches."""

from typing import Any

from kafkacore._fast.base.errors import InvalidRecordError

class UnknownPartition(InvalidRecordError):
    """The column `partition` contains a partition that the topic does not have."""

class RecordEncoder:
    """Encodes one Arrow record batch as Kafka record batches of magic 2, without producer ids. The encoding runs
    without the GIL. Only one thread at a time may use this object.

    Args:
        columns: an object with `__arrow_c_array__`. Its columns are value (binary or string), and any of key (binary
            or string), topic (string), partition (int32), timestamp, headers (list<struct<key: string, value:
            binary>>).
        now_ms: the timestamp of rows that have none.
        codec, level: as for RecordBatchBuilder.
        batch_bytes: the size, before compression, at which a batch ends. A larger record gets a batch of its own.
        most_bytes: a record that needs more bytes than this is refused.

    Raises:
        TypeError: a column has the wrong type.
        ValueError: `value` is missing, or a column is unknown.
        InvalidRecordError: a row of the column `topic` is null.
    """

    topics: list[str] | None
    """The names in the column `topic`, or None if there is no such column."""

    def __init__(
        self,
        columns: Any,
        *,
        now_ms: int,
        codec: str | int = "none",
        level: int | None = None,
        batch_bytes: int = 262144,
        most_bytes: int = 1048576,
    ) -> None: ...
    def __len__(self) -> int: ...
    def encode(
        self,
        partition_count: int,
        *,
        topic: str | None = None,
        partition: int | None = None,
        sticky: int = 0,
        ignore_keys: bool = False,
    ) -> tuple[list[tuple[int, bytes, int]], int]:
        """Returns a pair: the batches in the order of sending, each as (partition, bytes, number of records), and the
        next sticky partition.

        Args:
            topic: encodes only the rows with this name in the column `topic`.
            partition: the partition of all rows. If it is None, the column `partition` decides. If that column is
                missing or null in a row, the key decides as in Kafka's default partitioner. Rows with neither a
                partition nor a key go to the sticky partition, until its batch is full.
            sticky: the first sticky partition.
            ignore_keys: if true, keys do not decide: every row without a partition goes to the sticky partition.

        Raises:
            UnknownPartition: a partition in the column `partition` is out of range.
            InvalidRecordError: a header has no key, or a timestamp is before 1970 or beyond 64 bits of milliseconds.
            OverflowError: a row needs more than `most_bytes`.
        """

def murmur2(key: bytes) -> int:
    """Returns Kafka's hash of a key as an unsigned number."""

def seal(batch: bytes, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = False) -> bytes:
    """Returns the batch with its producer id, epoch and sequence. Raises CorruptBatchError unless `batch` is exactly
    one valid batch."""
