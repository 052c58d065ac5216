"""Builds record batches. Import the builder from `batch`."""

from collections.abc import Iterable

from typing_extensions import Buffer

CODEC_NAMES: dict[int, str]
DEFAULT_LIMIT_BYTES: int

class RecordBatchBuilder:
    """Builds one record batch (magic 2)."""

    def __init__(
        self,
        *,
        codec: str | int = "none",
        level: int | None = None,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
        limit_bytes: int = ...,
    ) -> None: ...
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | bytes, Buffer | None]] | None = None,
        offset_delta: int = -1,
    ) -> bool:
        """Adds a record. Returns False, and adds nothing, when it does not fit into `limit_bytes`.

        `timestamp` is in milliseconds, -1 for none; `offset_delta` is one after the last by default.
        Raises InvalidRecordError, or ValueError once the batch is built.
        """

    def append_all(self, timestamp: int, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> bool:
        """Adds a record for each key and value. Returns False, and adds none, when they do not all fit into
        `limit_bytes`. A RecordSource writes its records without an object for each. Raises InvalidRecordError,
        TypeError, ValueError once the batch is built.
        """

    def append_rows(self, timestamp: int, data: Buffer, ends: Buffer, first: int, last: int) -> bool:
        """Adds a record without key for each row in `[first, last)`. Its value is `data` from the end of the row before
        to its own end. Returns False when one does not fit; those before it are added. Raises InvalidRecordError,
        ValueError.
        """

    @property
    def record_count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, before compression."""

    def build(self) -> bytes:
        """Ends the batch and returns its bytes. Raises CodecError for a level that the codec does not have."""

def live_builders() -> int:
    """The number of builders that are not freed yet."""
