"""Makes Arrow batches from single Python rows: decoded records, the contents of small files, and damage."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

ROWS_AT_ONCE: Final = 5_000


def batches_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Returns `rows` as batches. A column that a row lacks becomes null. Timestamps are in microseconds."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    count = 0
    for row in rows:
        for name, values in columns.items():
            values.append(row.get(name))
        count += 1
        if count == ROWS_AT_ONCE:
            yield _batch(columns, schema)
            columns = {name: [] for name in schema.names}
            count = 0
    if count:
        yield _batch(columns, schema)


def _batch(columns: Mapping[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def micros(timestamp_ms: int | None) -> int | None:
    """Returns a Kafka timestamp in microseconds, or None for -1, which is Kafka's value for no timestamp."""
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms * 1000


def repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    """Returns an array with the same value in each of `count` rows."""
    return pa.repeat(pa.scalar(value, kind), count)
