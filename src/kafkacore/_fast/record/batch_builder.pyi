"""Builds record batches; `batch` is the module for those who work with them."""

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
        """Adds a record; False, and nothing added, when it does not fit into `limit_bytes`.

        `timestamp` is in milliseconds, -1 for none; `offset_delta` is one after the last where not given.
        Raises InvalidRecordError, or ValueError once the batch is built.
        """

    def append_all(self, timestamp: int, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> bool:
        """Adds a record for each key and value; False, and none of them added, when they do not all fit into
        `limit_bytes`. A RecordSource has them written without an object for each. Raises InvalidRecordError, TypeError,
        ValueError once the batch is built.
        """

    def append_rows(self, timestamp: int, data: Buffer, ends: Buffer, first: int, last: int) -> bool:
        """A record without key for each row in `[first, last)`: its value is `data` from where the row before it ends
        to where it ends. False when one does not fit; those before it are added. Raises InvalidRecordError, ValueError.
        """

    @property
    def record_count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Of the batch so far, before compression."""

    def build(self) -> bytes:
        """The batch; nothing can be appended any more. Raises CodecError for a level that the codec does not have."""

def live_builders() -> int:
    """That were made and not yet freed."""
