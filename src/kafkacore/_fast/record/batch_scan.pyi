import os
from types import TracebackType
from typing import Final, Self

ROW: Final[list[tuple[str, str]]]  # the numpy dtype of the rows that `rows` returns
REASONS: Final[dict[int, str]]  # the meaning of a `fault` other than 0

class BatchScan:
    """The batches of one file, from its start. Raises OSError if the file cannot be opened.

    If `max_bytes` is negative, the scan covers the whole file, else only the first `max_bytes`.
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
    def batch_position(self) -> int:
        """The position of the batch that was scanned last."""

    @property
    def base_offset(self) -> int:
        """The base offset of the batch that was scanned last."""

    @property
    def size(self) -> int:
        """The number of bytes to scan, from the file's start."""

    @property
    def left(self) -> int:
        """The number of bytes that have not been returned yet. After the last whole batch, this is the size of the
        incomplete batch at the end."""

    @property
    def damage(self) -> int:
        """The damage that ended the scan, as a key of REASONS. 0 for none."""

    @property
    def fault(self) -> int:
        """The fault of the last returned batch, as a key of REASONS. 0 for a batch without a fault. Raises ValueError
        before the first batch."""

    @property
    def data(self) -> bytes:
        """The bytes of the last returned batch. Raises ValueError before the first batch."""

    def batch_at(self, position: int, max_bytes: int) -> tuple[int, int] | None:
        """Returns base and last offset of the batch at `position`, or None if no whole batch of at most `max_bytes`
        begins there. The scan continues at `position`. Raises CorruptBatchError and OSError."""

    def seek(self, position: int) -> None:
        """Continues the scan at `position`, where a batch must begin. Raises ValueError if `position` is not within the
        bytes to scan."""

    def sound(self, max_bytes: int) -> memoryview | None:
        """Returns the bytes of the next batches without a fault: at most `max_bytes`, or one larger batch. Returns no
        bytes if the next batch has a fault. In that case `fault` is that fault, and the scan continues after the batch.
        Returns None at the end.

        Raises CorruptBatchError for damage, and OSError.
        """

    def rows(self) -> bytes:
        """Returns the headers of the next batches as an array of ROW. The array is empty after the last batch. The rows
        end before damage, and the next call raises CorruptBatchError or OSError."""
