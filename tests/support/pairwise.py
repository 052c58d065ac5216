"""Selects a few rows from the product of several factors, so that every value, or every pair of values, still
occurs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Row = dict[str, object]


def product(factors: Mapping[str, Sequence[object]]) -> list[Row]:
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


def met(row: Row, size: int) -> set[tuple[tuple[str, object], ...]]:
    """Returns every combination of `size` values in a row."""
    return set(itertools.combinations(row.items(), size))


def covering(factors: Mapping[str, Sequence[object]], size: int) -> list[Row]:
    """Returns enough rows to contain all combinations of `size` values. The choice is greedy and deterministic: the
    next row is always the one with the most new combinations."""
    rows, chosen = product(factors), []
    left = set().union(*(met(row, size) for row in rows))
    while left:
        best = max(rows, key=lambda row: len(met(row, size) & left))
        chosen.append(best)
        left -= met(best, size)
    return chosen
