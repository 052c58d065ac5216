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
        """Adds a record. Returns False, and adds nothing, if the record does not fit into `limit_bytes`.

        `timestamp` is in milliseconds, or -1 for none. By default, `offset_delta` is the offset delta of the last
        record plus 1. Raises InvalidRecordError. Raises ValueError if the batch has been built.
        """

    def append_all(self, timestamp: int, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> bool:
        """Adds a record for each key and value. Returns False, and adds none, if they do not all fit into
        `limit_bytes`. A RecordSource writes its records without creating an object for each. Raises InvalidRecordError
        and TypeError. Raises ValueError if the batch has been built.
        """

    def append_rows(self, timestamp: int, data: Buffer, ends: Buffer, first: int, last: int) -> bool:
        """Adds a record without a key for each row in `[first, last)`. The value of a row is the part of `data` from
        the end of the previous row to the row's own end. Returns False if a record does not fit; the records before it
        have been added. Raises InvalidRecordError and ValueError.
        """

    @property
    def record_count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, before compression."""

    def build(self) -> bytes:
        """Finishes the batch and returns its bytes. Raises CodecError if the codec does not have the level."""

def live_builders() -> int:
    """Returns the number of builders that have not been freed."""
