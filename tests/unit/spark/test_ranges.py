"""Which offsets a batch reads, and how tasks share them. The tests check laws that hold for all inputs, and compare
some results with the results of Spark's own connector.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.client import Range
from kafkacore.spark.ranges import Delay, backlog, divide, join_ranges, limit_rows, size, split_ranges

RANGES = st.lists(
    st.builds(
        lambda partition, start, count: Range("t", partition, start, start + count),
        st.integers(0, 1000), st.integers(0, 2**40), st.integers(0, 10**6),
    ),
    max_size=12, unique_by=lambda one: one.partition,
)  # fmt: skip
COUNTS = st.none() | st.integers(1, 100)


@given(RANGES, COUNTS, st.none() | st.integers(10_000, 10**7))
def test_split_ranges_cover_every_offset_once(ranges, least, most):
    parts = split_ranges(ranges, least, most)
    for whole in ranges:
        mine = [part for part in parts if part.partition == whole.partition]
        assert sum(size(part) for part in mine) == size(whole)
        assert all(before.end == after.start for before, after in itertools.pairwise(mine))
        if mine:
            assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
    assert all(0 < size(part) <= (most or size(part)) for part in parts)


@pytest.mark.parametrize(
    ("sizes", "least", "most", "tasks"),
    [
        ([2500] * 8, 2, None, 8),  # ranges are never joined
        ([2500] * 8, None, 1000, 24),
        ([2500] * 8, 16, None, 16),
        ([2500] * 8, 20, None, 24),  # 2.5 tasks each; a half is rounded up, as in Java
        ([100, 0, 100], 2, None, 2),
        ([1, 1_000_000], 10, None, 10),  # the small range stays whole
        ([3], 10, None, 3),  # a single offset cannot be divided
        ([], 10, 10, 0),
    ],
)
def test_split_ranges_gives_the_tasks_that_the_connector_plans(sizes, least, most, tasks):
    ranges = [Range("t", number, 10, 10 + count) for number, count in enumerate(sizes)]
    assert len(split_ranges(ranges, least, most)) == tasks


def test_divide_gives_parts_of_nearly_equal_size():
    assert [size(part) for part in divide(Range("t", 0, 5, 15), 3)] == [3, 3, 4]


@given(RANGES, st.integers(1, 10**7))
def test_joined_ranges_are_each_read_by_one_task(ranges, least):
    groups = join_ranges(ranges, least)
    assert sorted(one for group in groups for one in group) == sorted(ranges)
    assert all(len(group) == 1 or max(map(size, group)) < least for group in groups)
    shared = [size(one) for one in ranges if size(one) < least]
    assert len(groups) == len(ranges) - len(shared) + (max(1, sum(shared) // least) if shared else 0)


@pytest.mark.parametrize(
    ("sizes", "least", "loads"),
    [
        ([600] * 8, 10_000, [4800]),
        ([1250] * 16, 10_000, [10_000, 10_000]),
        ([30_000, 4000, 6000, 9000, 1000], 10_000, [30_000, 10_000, 10_000]),
        ([30_000, 50], 10_000, [30_000, 50]),
        ([5, 5], 1, [5, 5]),
        ([], 10_000, []),
    ],
)
def test_joined_ranges_make_tasks_of_equal_size(sizes, least, loads):
    ranges = [Range("t", number, 10, 10 + count) for number, count in enumerate(sizes)]
    assert [sum(map(size, group)) for group in join_ranges(ranges, least)] == loads


@given(
    st.dictionaries(
        st.tuples(st.just("t"), st.integers(0, 20)), st.tuples(st.integers(0, 10**9), st.integers(0, 10**6))
    ),
    st.integers(1, 10**6),
)
def test_limit_rows_takes_some_of_each_backlog_and_never_more_than_there_is(sizes, limit):
    start = {which: begin for which, (begin, _) in sizes.items()}
    latest = {which: begin + count for which, (begin, count) in sizes.items()}
    ends = limit_rows(start, latest, limit, {})
    assert ends.keys() == latest.keys()
    for which, end in latest.items():
        assert min(end, start[which] + 1) <= ends[which] <= end
    taken = sum(ends[which] - start[which] for which in latest)
    assert taken <= limit + len(latest)


def test_limit_rows_takes_what_the_connector_takes():
    # Spark's connector behaves like this: with unequal ranges, a limit of 9,000 out of 20,000 offsets gave 8,998.
    start = {("t", number): 0 for number in range(3)}
    latest = {("t", 0): 10_000, ("t", 1): 7_001, ("t", 2): 2_999}
    ends = limit_rows(start, latest, 9000, {})
    assert ends == {("t", 0): 4500, ("t", 1): 3150, ("t", 2): 1349}


def test_limit_rows_begins_where_a_new_partition_begins():
    assert limit_rows({}, {("t", 0): 1100}, 10, {("t", 0): 1000}) == {("t", 0): 1010}


def test_limit_rows_keeps_the_end_when_it_lies_before_the_start():
    assert limit_rows({("t", 0): 50}, {("t", 0): 20}, 10, {}) == {("t", 0): 20}


def test_backlog_counts_no_partition_that_went_back():
    assert backlog({("t", 0): 50, ("t", 1): 5}, {("t", 0): 20, ("t", 1): 8, ("t", 2): 4}) == 7


def test_delay_waits_until_enough_offsets_are_there_or_time_is_over():
    delay = Delay(min_offsets=100, max_delay_ms=1000)
    assert not delay.waits(1, now_ms=0)  # the first batch does not wait
    assert delay.waits(99, now_ms=500)
    assert not delay.waits(100, now_ms=600)
    assert delay.waits(0, now_ms=1599)
    assert not delay.waits(0, now_ms=1600)
