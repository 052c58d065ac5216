"""Record batches for Python: build them, walk them, look into them."""

from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import TypeAlias

from typing_extensions import Buffer

from kafkacore._fast.base.errors import CorruptBatchError, InvalidRecordError
from kafkacore._fast.codec.compression import Codec
from kafkacore._fast.record.batch_builder import CODEC_NAMES, DEFAULT_LIMIT_BYTES, RecordBatchBuilder

__all__ = [
    "CODEC_NAMES",
    "DEFAULT_LIMIT_BYTES",
    "Batch",
    "Batches",
    "ControlRecordType",
    "CorruptBatchError",
    "InvalidRecordError",
    "Record",
    "RecordBatchBuilder",
    "RecordIterator",
    "RecordRows",
    "live_objects",
]

# Values in one block: its bytes, the end of each value, and the range of selected values, whose end is exclusive.
RecordRows: TypeAlias = tuple[bytes, array[int], int, int]

class ControlRecordType(IntEnum):
    """The `type` of a control record's key (version and type, 16 bits each)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

class Record:
    """One record of a batch; `key`, `value` and `headers` are made at each access, the views copy nothing."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """In milliseconds. In a batch with log append time, it is the batch's own timestamp."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def key_view(self) -> memoryview | None: ...
    @property
    def value_view(self) -> memoryview | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...
    @property
    def attributes(self) -> int: ...
    @property
    def offset_delta(self) -> int: ...
    @property
    def control_type(self) -> int | None:
        """The ControlRecordType number in the key of a control record."""

class RecordIterator(Iterator[Record]):
    def __iter__(self) -> RecordIterator: ...
    def __next__(self) -> Record: ...

class Batch:
    """One record batch; iterating gives its records (magic 2). Made by Batches."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def partition_leader_epoch(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def crc_ok(self) -> bool:
        """Whether the stored checksum matches the bytes."""

    @property
    def attributes(self) -> int: ...
    @property
    def codec_name(self) -> str | None:
        """none, gzip, snappy, lz4 or zstd; None if the attributes name an unknown codec."""

    @property
    def timestamp_type(self) -> int:
        """0: create time; 1: log append time."""

    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    def values(self) -> tuple[memoryview, array[int], array[int]]:
        """`(data, starts, ends)`: where in `data` the value of each record lies; a null value is empty. Raises as
        iterating does."""

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones in this batch may be removed (KIP-534)."""

    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def record_count(self) -> int:
        """From the header; -1 for magic 0 and 1, whose headers have no count."""

    @property
    def data(self) -> memoryview: ...
    def __iter__(self) -> RecordIterator:
        """Raises CorruptBatchError (magic 0 and 1), CodecError, InvalidRecordError while iterating."""

    def find_timestamp(self, timestamp: int, start_offset: int = 0) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after both."""

    def find_max_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the greatest timestamp."""

class Batches(Iterator[Batch]):
    """The consecutive batches in `data`; a partial batch at the end is left out."""

    def __init__(self, data: Buffer, codec: Codec | None = None) -> None: ...
    @property
    def position(self) -> int:
        """Bytes of the batches returned so far."""

    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch:
        """Raises CorruptBatchError."""

def live_objects() -> int:
    """Builders and bodies that are not freed yet."""
