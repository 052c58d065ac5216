"""The error for a broken invariant, and the base class of the checkers that raise it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class Violation(Exception):
    """An invariant is broken. `invariant` is the name of the checker. The message says which node did what."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Checker:
    """Receives observations, and raises Violation if they break the checker's invariant."""

    sees: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {}

    def see(self, observation: Any) -> None:
        method = self.sees.get(type(observation))
        if method is not None:
            method(self, observation)

    def broken(self, message: str) -> Violation:
        return Violation(type(self).__name__, message)
