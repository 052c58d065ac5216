import os
from types import TracebackType
from typing import Final, Self

ROW: Final[list[tuple[str, str]]]  # a numpy dtype's description of what `rows` gives
REASONS: Final[dict[int, str]]  # what a `fault` other than 0 means

class BatchScan:
    """The batches of one file, from its start. Raises OSError when it cannot be opened.

    `max_bytes` below 0: the whole file, else what lies within so many bytes from its start.
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
        """Where the scan goes on, or where it found damage."""

    @property
    def size(self) -> int:
        """Bytes that are looked at, from the file's start."""

    @property
    def left(self) -> int:
        """Bytes that are not given yet; at the end those of a batch that is not whole."""

    @property
    def damage(self) -> int:
        """What ended the scan, by REASONS; 0 where nothing did."""

    @property
    def fault(self) -> int:
        """What is wrong with the batch given last, by REASONS; 0 where nothing is. Raises ValueError where there is
        none."""

    @property
    def data(self) -> bytes:
        """The bytes of the batch given last. Raises ValueError where there is none."""

    def batch_at(self, position: int, max_bytes: int) -> tuple[int, int] | None:
        """Base and last offset of the batch at `position`, of which `max_bytes` are looked at; None where none is
        whole. The scan goes on there. Raises CorruptBatchError, OSError."""

    def rows(self) -> bytes:
        """The next batches' headers as an array of ROW; empty at the end, and before damage, which the next call
        raises: CorruptBatchError, OSError."""
