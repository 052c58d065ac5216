"""Reads the headers of record batches into Arrow columns, with one row for each batch."""

from typing_extensions import Buffer

from kafkacore._fast.columns.rows import ArrowRows

BATCH_COLUMNS: tuple[str, ...]

class BatchColumns:
    """Reads the headers of the record batches of one file (magic 0 to 2) into Arrow batches of at most `max_rows` rows.

    The columns, in the order of BATCH_COLUMNS: file (string), position, baseOffset, lastOffset (int64), leaderEpoch
    (int32), producerId (int64), producerEpoch, baseSequence, recordCount (int32; -1 for magic 0 and 1), baseTimestamp,
    maxTimestamp (timestamp[us, UTC]), timestampType, magic, sizeBytes (int32), crc (int64, as stored), codec (string),
    crcOk, control, transactional (boolean). Only one thread at a time may use this object.
    """

    def __init__(self, file: str, max_rows: int = 10_000, *, check_crcs: bool = True) -> None:
        """If `check_crcs` is false, the column crcOk is null."""

    def feed(self, data: Buffer, position: int) -> int:
        """Adds the batches in `data`, which begins at byte `position` of the file. Stops at a partial batch, at damage
        (see `damage`), and when `max_rows` rows are waiting for `take`. Returns the number of bytes of the added
        batches. Runs without the GIL."""

    def take(self) -> ArrowRows | None:
        """Returns the rows that have been added since the last call, or None if there are none."""

    @property
    def damage(self) -> str | None:
        """The reason why the bytes after the last used byte cannot be a batch. None if more bytes may complete a
        batch."""
