"""Decodes record batches into Arrow columns."""

from collections.abc import Collection, Iterable

from typing_extensions import Buffer

from kafkacore._fast.columns.rows import ArrowRows as ArrowRows

COLUMNS: tuple[str, ...]

class RecordColumns:
    """Decodes the record batches of one partition (magic 0 to 2) into Arrow batches. An Arrow batch has at most
    `max_rows` rows and `max_bytes` bytes of keys, values and headers. A larger record gets an Arrow batch of its own.

    An Arrow batch has only the wanted columns, in the order of COLUMNS: key, value (binary), topic (string), partition
    (int32), offset (int64), timestamp (timestamp[us, UTC]), timestampType (int32; -1 none, 0 create, 1 log append) and
    headers (list<element: struct<key: string, value: binary>>, null without headers). Only one thread at a time may use
    this object.

    Args:
        max_inflated_bytes: a compressed batch may inflate to at most this many bytes.
        check_crcs: whether `take` verifies checksums.
    """

    def __init__(
        self,
        wanted: Collection[str],
        topic: str,
        partition: int,
        max_rows: int = 10_000,
        max_bytes: int = 16777216,
        *,
        max_inflated_bytes: int = 1073741824,
        check_crcs: bool = True,
    ) -> None: ...
    def feed(
        self,
        data: Buffer,
        start: int = 0,
        end: int = ...,
        aborted: Iterable[tuple[int, int]] | None = None,
    ) -> int:
        """Accepts whole batches. Ignores a partial batch at the end. Only records with start <= offset < end become
        rows. Control records never do. The object keeps the bytes, and `take` decodes them.

        Args:
            aborted: for read_committed, the producer id and first offset of each aborted transaction, from the
                response to the Fetch. The records of these transactions do not become rows. None means
                read_uncommitted.

        Returns the offset to read next: the offset after the last whole batch, or `start` if no batch is whole.

        Raises:
            CorruptBatchError: the bytes are not batches.
        """

    def take(self, *, last: bool = False) -> ArrowRows | None:
        """Returns a full Arrow batch, or None if the fed bytes do not fill one. With `last`, also returns an Arrow
        batch that is not full, and returns None only if there are no rows. Runs without the GIL.

        Raises:
            CorruptBatchError: a checksum is wrong, or a body cannot be inflated. The message names the offset.
            InvalidRecordError: a record is malformed.
        """

    @property
    def next_offset(self) -> int:
        """The offset that the last call of `feed` returned. -1 before the first call."""

    @property
    def held_bytes(self) -> int:
        """The memory, in bytes, of batches that have not been decoded yet and of rows that have not been taken yet."""

def live() -> int:
    """Returns the number of decoders and exported Arrow arrays that have not been released yet. For tests."""
