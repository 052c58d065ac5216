"""Rows that say the same are found together, whatever lies between them."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from kafkacore.metadata.partition_records import PartitionRecords
from kafkacore.metadata.partitions import CHUNK_ROWS, Partition, PartitionChunk, alike
from kafkacore.protocol.uuid import Uuid

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
    """All of a row but the partition it is about."""
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
def test_runs_cover_the_rows_once_and_say_one_thing_each(repeated: list[tuple[Partition, int]], random: object) -> None:
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


def test_a_run_ends_with_its_chunk() -> None:
    row = Partition(0, 0, (1,), (HERE,), (1,), 1, 0, 0)
    chunks = [chunk_of(*[row] * CHUNK_ROWS), chunk_of(*[row] * 3)]
    runs = list(alike(chunks, range(CHUNK_ROWS + 3)))
    assert runs == [(chunks[0], 0, CHUNK_ROWS), (chunks[1], 0, 3)]


def test_rows_alike_need_few_looks() -> None:
    row = Partition(0, 0, (1,), (HERE,), (1,), 1, 0, 0)
    chunk = chunk_of(*[row] * 1000, *[row._replace(leader=2)] * 1000)
    assert len(list(alike([chunk], range(2000)))) < 50
