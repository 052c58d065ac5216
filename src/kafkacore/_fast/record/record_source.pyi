from collections.abc import Collection, Iterator

class RecordSource(Collection[tuple[bytes, bytes | None]]):
    """Records that `RecordBatchBuilder.append_all` copies directly from where they are stored. This base class has
    none."""

    def __len__(self) -> int: ...
    def __contains__(self, record: object) -> bool: ...
    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Iterates over key and value of each record, as new objects."""
