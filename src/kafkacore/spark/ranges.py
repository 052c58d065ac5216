"""Arithmetic of offset ranges: which offsets of each partition a batch reads, and how its tasks share them.

This module follows the documented and the observed behaviour of Spark's connector. It uses no broker, no clock and no
Spark.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from kafkacore.client import Range
from kafkacore.spark.positions import MAX_OFFSET, Positions, TopicPartition


def size(one: Range) -> int:
    """Returns the number of offsets in the range. Compaction and aborted transactions leave gaps, so the range may hold
    fewer records, or none."""
    return one.end - one.start


def split_ranges(
    ranges: Iterable[Range], min_partitions: int | None = None, max_records: int | None = None
) -> list[Range]:
    """Splits ranges so that each has at most `max_records` offsets and there are about `min_partitions` ranges. Drops
    empty ranges. Never joins two ranges."""
    found = [one for one in ranges if size(one) > 0]
    if max_records is not None:
        found = [part for one in found for part in divide(one, -(-size(one) // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(size(one) for one in found)
    whole = [one for one in found if _share(size(one), total, min_partitions) == 1]
    rest_size = total - sum(size(one) for one in whole)
    rest_parts = max(min_partitions - len(whole), 1)
    kept = set(whole)
    return [
        part
        for one in found
        for part in ([one] if one in kept else divide(one, _share(size(one), rest_size, rest_parts)))
    ]


def join_ranges(ranges: Sequence[Range], min_records: int) -> list[list[Range]]:
    """Returns the ranges that each task reads. A range of at least `min_records` offsets has a task of its own. Smaller
    ranges share tasks of similar size. On average these tasks have at least `min_records` offsets, unless all smaller
    ranges together have fewer."""
    large = [[one] for one in ranges if size(one) >= min_records]
    small = sorted((one for one in ranges if size(one) < min_records), key=size, reverse=True)
    count = max(1, sum(map(size, small)) // min_records) if small else 0
    shared: list[list[Range]] = [[] for _ in range(count)]
    # Each range goes to the task that has the fewest offsets so far.
    loads = [(0, number) for number in range(count)]
    for one in small:
        load, number = loads[0]
        shared[number].append(one)
        heapq.heapreplace(loads, (load + size(one), number))
    return large + shared


def divide(whole: Range, parts: int) -> list[Range]:
    """Returns `parts` ranges of nearly equal size, or fewer if the range has fewer offsets."""
    parts = max(1, min(parts, size(whole)))
    bounds = [whole.start]
    for left in range(parts, 0, -1):
        bounds.append(bounds[-1] + (whole.end - bounds[-1]) // left)
    return [whole._replace(start=start, end=end) for start, end in itertools.pairwise(bounds)]


def _share(offsets: int, total: int, parts: int) -> int:
    # Java rounds a half up. Python rounds a half to the even neighbour.
    return max(1, math.floor(offsets / total * parts + 0.5)) if total else 1


def limit_rows(start: Positions, latest: Positions, limit: int, earliest: Mapping[TopicPartition, int]) -> Positions:
    """Returns the end offsets of a batch of about `limit` offsets between `start` and `latest`. Each partition gets a
    share in proportion to its backlog, and at least one offset if it has a backlog. `earliest` contains the first
    offsets of the partitions that `start` lacks."""
    begins = {which: start.get(which, earliest.get(which, end)) for which, end in latest.items()}
    sizes = {which: end - begins[which] for which, end in latest.items() if end > begins[which]}
    total = sum(sizes.values())
    ends = dict(latest)
    for which, waiting in sizes.items():
        share = limit * (waiting / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        ends[which] = min(latest[which], begins[which] + taken, MAX_OFFSET)
    return ends


def backlog(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Returns the number of offsets between `start` and `latest`. A partition that `start` lacks counts from 0."""
    return sum(max(0, end - start.get(which, 0)) for which, end in latest.items())


class Delay:
    """Decides when a stream with `minOffsetsPerTrigger` starts a batch: when enough offsets are available, or when
    `max_delay_ms` have passed since the last batch. The first batch never waits."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self.min_offsets = min_offsets
        self.max_delay_ms = max_delay_ms
        self.last_ms: float | None = None

    def waits(self, waiting: int, now_ms: float) -> bool:
        due = self.last_ms is None or now_ms - self.last_ms >= self.max_delay_ms
        if not due and waiting < self.min_offsets:
            return True
        self.last_ms = now_ms
        return False
