"""Checkers of liveness: after the faults end, the cluster makes progress within a limit of virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kafkacore.simulation.checkers.observations import HandlerFailed, Healed, NodeFailed, Progressed, TimePassed
from kafkacore.simulation.checkers.violation import Checker


class NodesGoOn(Checker):
    """A node stops only when the simulator stops it or when its disk is full."""

    def failed(self, seen: NodeFailed) -> None:
        if not seen.explained:
            raise self.broken(f"node {seen.node} failed although no fault explains it: {seen.error}")

    sees: ClassVar = {NodeFailed: failed}


class HandlersAnswer(Checker):
    """Every request gets the response that its handler has made, and never UNKNOWN_SERVER_ERROR, which would mean that
    the node has a defect."""

    def failed(self, seen: HandlerFailed) -> None:
        raise self.broken(f"{seen.request}: {seen.error}")

    sees: ClassVar = {HandlerFailed: failed}


class Progress(Checker):
    """Everything in `expected` happens within the limit after the faults end."""

    def __init__(self, expected: Iterable[str], bound_ms: int) -> None:
        self._expected, self._bound_ms = tuple(expected), bound_ms
        self._missing: set[str] = set()
        self._healed_ms: int | None = None

    @property
    def waits_for(self) -> list[str]:
        return sorted(self._missing)

    def healed(self, seen: Healed) -> None:
        self._healed_ms, self._missing = seen.at_ms, set(self._expected)

    def progressed(self, seen: Progressed) -> None:
        if self._healed_ms is not None and seen.at_ms >= self._healed_ms:
            self._missing.discard(seen.what)

    def time(self, seen: TimePassed) -> None:
        if self._healed_ms is not None and self._missing and seen.at_ms - self._healed_ms > self._bound_ms:
            raise self.broken(
                f"{seen.at_ms - self._healed_ms} ms after the faults healed there was no {', '.join(self.waits_for)}"
            )

    sees: ClassVar = {Healed: healed, Progressed: progressed, TimePassed: time}
