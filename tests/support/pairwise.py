"""Few rows of a product in which every two values of different factors still meet."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Row = dict[str, object]


def product(factors: Mapping[str, Sequence[object]]) -> list[Row]:
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


def pairs(row: Row) -> set[tuple[tuple[str, object], tuple[str, object]]]:
    return set(itertools.combinations(row.items(), 2))


def pairwise(factors: Mapping[str, Sequence[object]]) -> list[Row]:
    """Greedy, and the same each time: the row that has most of the pairs not seen yet, until none is left."""
    rows, chosen = product(factors), []
    left = set().union(*map(pairs, rows))
    while left:
        best = max(rows, key=lambda row: len(pairs(row) & left))
        chosen.append(best)
        left -= pairs(best)
    return chosen
