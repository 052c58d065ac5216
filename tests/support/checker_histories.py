"""Histories of observations for the simulator's checkers. Some histories are valid. In each of the others, the last
observation breaks an invariant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkacore.simulation.checkers.violation import Checker, Violation

Cases = list[tuple[type[Checker], Sequence[Any]]]


def names(cases: Cases) -> list[str]:
    """Returns an id for each case of a parametrized test."""
    return [f"{index}-{checker.__name__}" for index, (checker, _) in enumerate(cases)]


def keeps_still(checker: type[Checker], history: Sequence[Any]) -> None:
    made = checker()
    for seen in history:
        made.see(seen)


def objects_to_the_last(checker: type[Checker], history: Sequence[Any]) -> None:
    made = checker()
    for seen in history[:-1]:
        made.see(seen)
    with pytest.raises(Violation, match=checker.__name__):
        made.see(history[-1])
