"""A broken invariant, and the base of the checkers that raise it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class Violation(Exception):
    """`invariant` is the name of the checker; the message says who did what."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Checker:
    """Takes observations, and raises Violation when they break its invariant."""

    sees: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {}

    def see(self, observation: Any) -> None:
        method = self.sees.get(type(observation))
        if method is not None:
            method(self, observation)

    def broken(self, message: str) -> Violation:
        return Violation(type(self).__name__, message)
