from typing import Any

def read_offset(value: bytes) -> tuple[int, int, str, int, int, bytes] | None:
    """Offset, leader epoch, metadata, commit timestamp, expire timestamp (-1: none), topic id (zeros: none) of an
    OffsetCommitValue with its version before it. None for one that is not plain: another version, other tagged fields,
    or bytes that cannot be read."""

class OffsetRecordWriter:
    def __init__(self, partition_class: type, metadata_limit: int) -> None:
        """Raises TypeError, KeyError for a class that has no slots of an OffsetCommitRequestPartition's names."""

    def write(
        self,
        prefix: bytes,
        tail: bytes,
        expiring: bool,
        partitions: list[Any],
        records: list[tuple[bytes, bytes | None]],
    ) -> tuple[list[int], list[bytes], list[int] | None]:
        """Adds key and value of each partition to `records`; returns their indexes and values, and the indexes of those
        whose metadata is too long, None where there are none.

        `prefix` is a key up to its partition, `tail` what follows the metadata in a value: of version 1 when `expiring`
        (both timestamps), else of version 4 (the timestamp and the tagged fields).

        Raises TypeError for another class, ValueError for metadata of more than 32767 bytes.
        """
