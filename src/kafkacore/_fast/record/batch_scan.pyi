import os
from types import TracebackType
from typing import Final, Self

ROW: Final[list[tuple[str, str]]]  # the numpy dtype of the rows that `rows` returns
REASONS: Final[dict[int, str]]  # the meaning of a `fault` other than 0

class BatchScan:
    """The batches of one file, from its start. Raises OSError when it cannot be opened.

    With `max_bytes` below 0 it scans the whole file, else only the first `max_bytes`.
    """

    path: str
    def __init__(self, path: str | os.PathLike[str], max_bytes: int = -1) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def position(self) -> int:
        """The position where the scan continues, or where it found damage."""

    @property
    def size(self) -> int:
        """The number of bytes to scan, from the file's start."""

    @property
    def left(self) -> int:
        """The bytes that are not returned yet; at the end those of a partial batch."""

    @property
    def damage(self) -> int:
        """The damage that ended the scan, a key of REASONS; 0 for none."""

    @property
    def fault(self) -> int:
        """The fault of the last returned batch, a key of REASONS; 0 for a sound batch. Raises ValueError before the
        first batch."""

    @property
    def data(self) -> bytes:
        """The bytes of the last returned batch. Raises ValueError before the first batch."""

    def batch_at(self, position: int, max_bytes: int) -> tuple[int, int] | None:
        """Base and last offset of the batch at `position`; None if no whole batch of at most `max_bytes` begins there.
        The scan continues there. Raises CorruptBatchError, OSError."""

    def rows(self) -> bytes:
        """The headers of the next batches as an array of ROW; empty at the end. The rows end before damage, which the
        next call raises: CorruptBatchError, OSError."""
