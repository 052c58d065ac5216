"""The findings about log directories. A problem prevents a start or means lost data. A remark describes something that
the node repairs at its next start."""

from __future__ import annotations

from typing import Final

# The number of findings of one kind that are shown for a directory; the others are only counted.
MAX_OF_A_KIND: Final = 10


class Findings:
    """Findings as whole sentences, in the order in which they were found."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def add_problems(self, found: list[str], kind: str) -> None:
        """Adds problems, but at most MAX_OF_A_KIND of them. Counts the others and names their `kind`."""
        self.problems += found[:MAX_OF_A_KIND]
        if len(found) > MAX_OF_A_KIND:
            self.problems.append(f"... and {len(found) - MAX_OF_A_KIND} more {kind}")
