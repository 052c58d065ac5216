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
    """The lines that describe a file. The iterator returns some lines at a time, as bytes that end with a whole line.

    `style` is TEXT or JSON. With RECORDS in `flags`, each record gets a line, too. METADATA and CONTENTS choose what
    that line contains. With DECODED, the caller describes the records of all batches except control batches (see
    `is_taken`). If the iteration fails, it returns the lines before the error and then raises CorruptBatchError or
    OSError.
    """

    def __init__(self, path: str | os.PathLike[str], style: int, flags: int, max_bytes: int = -1) -> None: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...
    @property
    def is_taken(self) -> bool:
        """Whether the caller must describe the records of the last batch. These are records that need a decoder, and
        control records other than the end of a transaction."""

    @property
    def is_control(self) -> bool:
        """Whether the last batch has control records."""

    @property
    def gap_pairs(self) -> bytes:
        """The pairs of consecutive records whose offsets are not consecutive, as pairs of int64 in host order. The
        first pair begins with -1."""

    def records(self) -> Iterator[tuple[Record, bytes]]:
        """Returns each record that the caller must describe, with the start of its line. Raises CorruptBatchError,
        CodecError and InvalidRecordError."""
