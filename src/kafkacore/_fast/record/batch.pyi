"""Record batches for Python: builds, iterates over and inspects them."""

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

# Values in one block: the bytes of the block, the end of each value, and the range of selected values, whose end is
# exclusive.
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
    """One record of a batch. `key`, `value` and `headers` are created at each access. The views copy nothing."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """The timestamp in milliseconds. In a batch with log append time, it is the timestamp of the batch."""

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
    """One record batch. Iterating over it returns its records (magic 2 only). `Batches` creates it."""

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
        """The name of the codec (none, gzip, snappy, lz4 or zstd), or None if the attributes name an unknown codec."""

    @property
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""

    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    def values(self) -> tuple[memoryview, array[int], array[int]]:
        """Returns `(data, starts, ends)`. The value of record i is `data[starts[i]:ends[i]]`. A null value is empty.
        Raises the same errors as iteration."""

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which tombstones in this batch may be removed (KIP-534), or None."""

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
        """The number of records according to the header. -1 for magic 0 and 1, whose headers have no count."""

    @property
    def data(self) -> memoryview: ...
    def __iter__(self) -> RecordIterator:
        """Iterates over the records. The iteration raises CorruptBatchError (for magic 0 and 1), CodecError and
        InvalidRecordError."""

    def find_timestamp(self, timestamp: int, start_offset: int = 0) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record that is at or after both `timestamp` and `start_offset`, or
        None."""

    def find_max_timestamp(self) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first record with the greatest timestamp, or None for an empty batch."""

class Batches(Iterator[Batch]):
    """The consecutive batches in `data`. Leaves out an incomplete batch at the end."""

    def __init__(self, data: Buffer, codec: Codec | None = None) -> None: ...
    @property
    def position(self) -> int:
        """The total size of the batches returned so far."""

    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch:
        """Returns the next batch. Raises CorruptBatchError."""

def live_objects() -> int:
    """Returns the number of builders and bodies that have not been freed."""
