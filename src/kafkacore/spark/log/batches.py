"""The table `batches`: the headers of record batches, and whether the checksums are correct."""

import os
from collections.abc import Iterator
from io import FileIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkacore._fast.columns.batch_columns import BATCH_COLUMNS, BatchColumns
from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore.spark.log.rows import batches_of, repeated
from kafkacore.spark.log.scanning import BLOCK_BYTES, Damage, is_preallocated, opened, shown_path, torn
from kafkacore.spark.log.splits import Split

_NATIVE: Final = frozenset(BATCH_COLUMNS)
_BAD_CRC: Final = "the checksum is wrong"


def header_batches(split: Split, schema: pa.Schema, *, corrupt_rows: bool) -> Iterator[pa.RecordBatch]:
    """Returns one row for each batch of a split. With `corrupt_rows`, damage becomes a row with a `problem`; otherwise
    damage raises CorruptBatchError."""
    found = opened(split, _file_of)
    if found is None:
        return
    file, split = found
    replica = split.segment.replica
    shown = shown_path(split)
    place = {
        "broker": replica.log_dir.broker,
        "topic": replica.topic,
        "partition": replica.partition,
        "kind": replica.kind.name.lower(),
        "file": shown,
    }
    for part in _scan(file, split, shown):
        if isinstance(part, Damage):
            if not corrupt_rows:
                raise CorruptBatchError(part.text())
            yield from batches_of([{**place, "position": part.position, "problem": part.text()}], schema)
            continue
        if not corrupt_rows and not pc.all(sound := part.column("crcOk")).as_py():
            bad = pc.index(sound, False).as_py()
            position, offset = part.column("position")[bad].as_py(), part.column("baseOffset")[bad].as_py()
            raise CorruptBatchError(Damage(file.name, position, offset, _BAD_CRC).text())
        yield pa.RecordBatch.from_arrays([_column(part, field, place) for field in schema], schema=schema)


def _file_of(path: str, _split: Split) -> FileIO:
    return open(path, "rb", buffering=0)


def _scan(file: FileIO, split: Split, shown: str) -> Iterator[pa.RecordBatch | Damage]:
    """Yields the headers of a split's batches, and closes the file. After damage that makes later batches impossible to
    find, yields the damage and ends."""
    columns = BatchColumns(shown)
    position, block_bytes = split.start, BLOCK_BYTES
    with file:
        while position < split.end:
            asked = min(block_bytes, split.end - position)
            data = os.pread(file.fileno(), asked, position)
            used = columns.feed(data, position)
            if (rows := columns.take()) is not None:
                yield pa.record_batch(rows)
            position += used
            if columns.damage is not None:
                if split.segment.active and is_preallocated(file.name, position):
                    return
                yield Damage(file.name, position, None, columns.damage)
                return
            if used == 0 and (len(data) < asked or asked == split.end - position):
                break  # the log has been truncated since, or its last batch is incomplete
            block_bytes = BLOCK_BYTES if used else 2 * block_bytes
    if position < split.end and not split.segment.active:
        yield torn(file.name, position, split.end)


def _column(batch: pa.RecordBatch, field: pa.Field, place: dict[str, Any]) -> pa.Array:
    if field.name in _NATIVE:
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
    if field.name == "problem":
        return pc.if_else(batch.column("crcOk"), pa.nulls(len(batch), field.type), pa.scalar(_BAD_CRC, field.type))
    return repeated(place[field.name], len(batch), field.type)
