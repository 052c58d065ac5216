import os
from collections.abc import Iterator
from typing import Final

from kafkacore._fast.record.batch import Record
from kafkacore._fast.record.record_scan import RecordScan

TEXT: Final[int]
JSON: Final[int]
RECORDS: Final[int]
METADATA: Final[int]
CONTENTS: Final[int]
DECODED: Final[int]

class Description(RecordScan):
    """The lines of a file, some at a time; the iterator returns bytes of whole lines.

    `style` is TEXT or JSON. `flags`: RECORDS for a line of each record too, with METADATA and CONTENTS of it; with
    DECODED the caller describes the records of batches that are no control batches, see `is_taken`. Iterating raises
    CorruptBatchError or OSError after it has returned the lines before the error.
    """

    def __init__(self, path: str | os.PathLike[str], style: int, flags: int, max_bytes: int = -1) -> None: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...
    @property
    def is_taken(self) -> bool:
        """Whether the caller describes the records of the last batch: records that need a decoder, and control
        records other than the end of a transaction."""

    @property
    def is_control(self) -> bool:
        """Whether the last batch has control records."""

    @property
    def gap_pairs(self) -> bytes:
        """Neighbouring offsets that are not consecutive, as int64 pairs in host order; the first begins with -1."""

    def records(self) -> Iterator[tuple[Record, bytes]]:
        """Each record that the caller describes, with the start of its line. Raises CorruptBatchError, CodecError,
        InvalidRecordError."""
