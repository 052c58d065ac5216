from collections.abc import Collection, Iterator

class RecordSource(Collection[tuple[bytes, bytes | None]]):
    """Records that `RecordBatchBuilder.append_all` takes from where they lie. This one has none."""

    def __len__(self) -> int: ...
    def __contains__(self, record: object) -> bool: ...
    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Key and value of each, made now."""
