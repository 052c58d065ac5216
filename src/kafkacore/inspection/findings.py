"""The findings about log directories. A problem stops a start or means lost data; a remark is about something that the
next start mends."""

from __future__ import annotations

from typing import Final

MAX_OF_A_KIND: Final = 10  # findings of one kind that are shown for a directory; the rest is counted


class Findings:
    """Findings as whole sentences, in the order found."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def add_problems(self, found: list[str], kind: str) -> None:
        """Adds as many as a person reads, and counts the rest by `kind`."""
        self.problems += found[:MAX_OF_A_KIND]
        if len(found) > MAX_OF_A_KIND:
            self.problems.append(f"... and {len(found) - MAX_OF_A_KIND} more {kind}")
