"""The search for equal rows in chunks of partitions."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkacore.metadata.partition_records import PartitionRecords
from kafkacore.metadata.partitions import CHUNK_ROWS, Partition, PartitionChunk, PartitionColumns, alike
from kafkacore.protocol.messages import PartitionChangeRecord
from kafkacore.protocol.uuid import MIGRATING_DIRECTORY, Uuid

HERE, THERE, TOPIC_ID = Uuid(b"h" * 16), Uuid(b"t" * 16), Uuid(b"i" * 16)


def chunk_of(*rows: Partition) -> PartitionChunk:
    chunk = PartitionChunk()
    blank = PartitionRecords()
    blank.number(TOPIC_ID, 0, len(rows))
    blank.place(len(rows), (0,), (0,), 0, [HERE])
    chunk.extend(array("i", [0]) * len(rows), blank, 0)
    for index, row in enumerate(rows):
        chunk.put(index, row)
    return chunk


def said(chunk: PartitionChunk, index: int) -> Partition:
    """Returns all fields of a row except the partition's number."""
    return chunk.get(index)._replace(topic_row=0, partition=0)


PLACES = st.sampled_from([((1,), (HERE,)), ((1, 2), (HERE, THERE)), ((2, 1), (HERE, THERE)), ((1, 2), (HERE, HERE))])
ROWS = st.builds(
    lambda place, isr, leader, epoch, changes: Partition(0, 0, *place, isr, leader, epoch, changes),
    PLACES,
    st.sampled_from([(1,), (1, 2)]),
    st.integers(-1, 1),
    st.integers(0, 1),
    st.integers(0, 1),
)


@given(st.lists(st.tuples(ROWS, st.integers(1, 9)), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_runs_cover_each_row_once_and_have_equal_rows(repeated: list[tuple[Partition, int]], random: object) -> None:
    rows = [row._replace(partition=number) for row, count in repeated for number in range(count)]
    chunk = chunk_of(*rows)
    wanted = [index for index in range(len(rows)) if random.random() < 0.9]  # type: ignore[attr-defined]
    random.shuffle(wanted)  # type: ignore[attr-defined]
    found = []
    for where, first, count in alike([chunk], wanted):
        assert where is chunk
        assert all(said(chunk, index) == said(chunk, first) for index in range(first, first + count))
        found += range(first, first + count)
    assert found == sorted(wanted)


def test_run_ends_with_its_chunk() -> None:
    row = Partition(0, 0, (1,), (HERE,), (1,), 1, 0, 0)
    chunks = [chunk_of(*[row] * CHUNK_ROWS), chunk_of(*[row] * 3)]
    runs = list(alike(chunks, range(CHUNK_ROWS + 3)))
    assert runs == [(chunks[0], 0, CHUNK_ROWS), (chunks[1], 0, 3)]


def test_equal_rows_need_few_comparisons() -> None:
    row = Partition(0, 0, (1,), (HERE,), (1,), 1, 0, 0)
    chunk = chunk_of(*[row] * 1000, *[row._replace(leader=2)] * 1000)
    assert len(list(alike([chunk], range(2000)))) < 50


WIDE = Partition(0, 7, (1, 2, 3), (HERE, THERE, HERE), (1, 2, 3), 1, 0, 0, 0, (3,), (2,))


@given(
    st.lists(ROWS | st.just(WIDE), min_size=1, max_size=6), st.lists(ROWS | st.just(WIDE), min_size=6, max_size=9),
    st.data(),
)  # fmt: skip
def test_rows_of_columns_replace_rows_as_if_each_was_put(
    told: list[Partition], known: list[Partition], data: st.DataObject
) -> None:
    columns = PartitionColumns()
    columns.take(chunk_of(*told), 0, len(told))
    first = data.draw(st.integers(0, len(told) - 1))
    count = data.draw(st.integers(1, len(told) - first))
    index = data.draw(st.integers(0, len(known) - count))
    chunk, twin = chunk_of(*known), chunk_of(*known)
    chunk.replace(index, count, 5, columns, first)
    for each in range(count):
        twin.put(index + each, columns.row(first + each, 5))
    assert [chunk.get(each) for each in range(len(known))] == [twin.get(each) for each in range(len(known))]


def changed(row: Partition, change: Any) -> Partition:
    """Returns a partition as it is after a PartitionChangeRecord, computed by a simple Python counterpart."""
    replicas = row.replicas if change.replicas is None else tuple(change.replicas)
    if change.directories is not None:
        directories = tuple(change.directories)
    elif change.replicas is not None:
        known = dict(zip(row.replicas, row.directories, strict=True))
        directories = tuple([known.get(replica, MIGRATING_DIRECTORY) for replica in replicas])
    else:
        directories = row.directories
    leads = change.leader != -2
    elr = change.eligible_leader_replicas
    last = change.last_known_elr
    return Partition(
        row.topic_row,
        row.partition,
        replicas,
        directories,
        row.isr if change.isr is None else tuple(change.isr),
        change.leader if leads else row.leader,
        row.leader_epoch + 1 if leads else row.leader_epoch,
        row.partition_epoch + 1,
        row.recovery_state if change.leader_recovery_state == -1 else change.leader_recovery_state,
        row.removing if change.removing_replicas is None else tuple(change.removing_replicas),
        row.adding if change.adding_replicas is None else tuple(change.adding_replicas),
        row.elr if elr is None else tuple(elr),
        row.last_known_elr if last is None else tuple(last),
    )


IDS = st.none() | st.lists(st.integers(0, 9), max_size=4, unique=True)


@st.composite
def changes(draw: Any) -> Any:
    record = PartitionChangeRecord(
        isr=draw(IDS),
        leader=draw(st.integers(-2, 3)),
        leader_recovery_state=draw(st.integers(-1, 1)),
        removing_replicas=draw(IDS),
        adding_replicas=draw(IDS),
        eligible_leader_replicas=draw(IDS),
        last_known_elr=draw(IDS),
    )
    if draw(st.booleans()):
        record.replicas = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
        if draw(st.booleans()):
            record.directories = [Uuid(draw(st.binary(min_size=16, max_size=16))) for _ in record.replicas]
    return record


@given(
    st.lists(ROWS, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), changes()), max_size=6),
)
def test_changes_in_place_equal_changes_of_single_rows(rows: list[Partition], told: list[tuple[int, int, Any]]) -> None:
    chunk = chunk_of(*rows)
    for place, most, record in told:
        index = place % len(rows)
        count = min(most, len(rows) - index)
        chunk.change(index, count, record)
        for at in range(index, index + count):
            rows[at] = changed(rows[at], record)
        assert [chunk.get(at) for at in range(len(rows))] == rows
