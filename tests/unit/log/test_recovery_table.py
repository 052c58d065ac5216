"""Each row of docs/recovery.md: the content of a log directory, and the log that a node loads from it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import damaged_logs
from damaged_logs import ROWS, Row
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.world.environment import Environment
from kafkacore.storage.log_manager import LogManager

DOCUMENT = Path(__file__).parents[3] / "docs" / "recovery.md"


def loaded(base: Path) -> LogManager:
    manager = LogManager(Environment(), [str(base)], lambda topic: damaged_logs.SETTINGS)
    manager.load()
    return manager


def record() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(timestamp=int(time.time() * 1000), key=None, value=b"v")
    return builder.build()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_start_repairs_the_log_of_every_row(tmp_path: Path, row: Row) -> None:
    now_ms = int(time.time() * 1000)
    base = tmp_path / "data"
    damaged_logs.prepare(base, now_ms, row)
    manager = loaded(base)
    (handle,) = list(manager)
    described = damaged_logs.describe(handle, now_ms)
    end = handle.end_offset if row.end is None else row.end
    assert handle.end_offset == end
    if row.end is None:
        assert 0 < end < 40
    assert [str(path) for pattern in row.gone for path in (base / "t-0").glob(pattern)] == []
    # The log accepts appends. It stays the same after a crash or an orderly stop that follows immediately.
    assert handle.append(record()).first_offset == end
    assert handle.end_offset == end + 1
    manager.close()
    again = loaded(base)
    (handle,) = list(again)
    assert handle.end_offset == end + 1
    if row.end == 40:
        assert field(damaged_logs.describe(handle, now_ms), "batches").startswith(field(described, "batches"))
        assert field(damaged_logs.describe(handle, now_ms), "aborted") == field(described, "aborted")
    again.close()


def field(described: str, name: str) -> str:
    return next(part for part in described.split(" ") if part.startswith(f"{name}="))


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.end == 40 and row.records is None], ids=lambda row: row.name
)
def test_readers_of_committed_records_lose_no_whole_batch(tmp_path: Path, row: Row) -> None:
    now_ms = int(time.time() * 1000)
    damaged_logs.build(tmp_path / "sound", now_ms)
    damaged_logs.prepare(tmp_path / "damaged", now_ms, row)
    (sound,) = damaged_logs.described(tmp_path / "sound", now_ms)
    (found,) = damaged_logs.described(tmp_path / "damaged", now_ms)
    changed = {
        "no producer snapshots": {"stable", "producers"},  # the log looks as if it was older than idempotent producers
        "a log start within a batch": {"start", "epochs", "batches", "times", "aborted"},
        "segments that overlap, after a crash": {"batches"},
        "a segment that is missing": {"batches", "times", "aborted"},
    }.get(row.name, set())
    for name in {"start", "end", "stable", "epochs", "producers", "aborted", "batches", "times"} - changed:
        assert field(found, name) == field(sound, name)


@pytest.mark.parametrize("row", [row for row in ROWS if row.end == 40], ids=lambda row: row.name)
def test_log_of_every_row_can_be_truncated_into_each_segment(tmp_path: Path, row: Row) -> None:
    now_ms = int(time.time() * 1000)
    bases = damaged_logs.prepare(tmp_path / "data", now_ms, row)
    manager = loaded(tmp_path / "data")
    (handle,) = list(manager)
    for base in reversed(bases):
        if base + 1 > handle.log_start_offset:
            handle.truncate_to(base + 1)
            assert handle.directory.offline_errno == 0
            assert handle.end_offset <= base + 1
    end = handle.end_offset
    handle.become_leader(1, 4)
    assert handle.append(record()).first_offset == end
    manager.close()
    again = loaded(tmp_path / "data")
    (handle,) = list(again)
    assert handle.end_offset == end + 1
    again.close()


def test_document_has_every_row() -> None:
    text = DOCUMENT.read_text()
    assert [row.name for row in ROWS if f"| {row.name} |" not in text] == []
    first = text.partition("\n## ")[0]  # the metadata log has a separate table
    rows = [line for line in first.splitlines() if line.startswith("| ") and not line.startswith("| found")]
    assert len(rows) == len(ROWS)
