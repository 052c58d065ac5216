"""Command lines that say in full what they want, as programs and services write them, read without argparse: it, and
the translations that it looks for, cost a start 4 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Words(NamedTuple):
    """`values` has each option's, in order; `flags` those that are there, `files` what belongs to no option."""

    values: dict[str, list[str]]
    flags: set[str]
    files: list[str]

    def last(self, option: str) -> str | None:
        """Of several that are given the last is meant."""
        return self.values[option][-1] if self.values[option] else None


def read(words: Sequence[str], options: Collection[str], flags: Collection[str] = ()) -> Words | None:
    """None: argparse is to say what is meant (--ov for --override), or what is wrong."""
    values: dict[str, list[str]] = {option: [] for option in options}
    given: set[str] = set()
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in values:
            value = value if equals else next(rest, "-")
            if value.startswith("-"):
                return None
            values[option].append(value)
        elif word in flags:
            given.add(word)
        elif word.startswith("-"):
            return None
        else:
            files.append(word)
    return Words(values, given, files)
