"""Keeps, for a checker, the offsets below which clients have deleted records."""

from __future__ import annotations

from kafkacore.simulation.checkers.observations import RecordsDeleted


class Deletions:
    """A part of a checker. A deletion counts as soon as a client asks for it, because its outcome may be unknown. The
    checker names `deleted` in its `sees`."""

    def __init__(self) -> None:
        self._deleted: dict[str, int] = {}

    def deleted(self, seen: RecordsDeleted) -> None:
        self._deleted[seen.log] = max(seen.before, self.deleted_below(seen.log))

    def deleted_below(self, log: str) -> int:
        """Returns the offset below which clients have deleted the records of a log."""
        return self._deleted.get(log, 0)
