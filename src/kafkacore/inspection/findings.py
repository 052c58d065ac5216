"""What an inspection of log directories found: problems, which a start stumbles over or which lost something, and
remarks, which the next start puts right by itself."""

from __future__ import annotations

from typing import Final

MAX_OF_A_KIND: Final = 10  # of the same finding in one directory, the others are counted


class Findings:
    """Whole sentences, in the order found."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def add_problems(self, found: list[str], kind: str) -> None:
        """As many as a person reads; `kind` names the rest of them."""
        self.problems += found[:MAX_OF_A_KIND]
        if len(found) > MAX_OF_A_KIND:
            self.problems.append(f"... and {len(found) - MAX_OF_A_KIND} more {kind}")
