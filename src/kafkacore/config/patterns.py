"""Checks regular expressions of clients. This release stores some patterns and applies none of them, so it only looks
for syntax errors.

A check must be fast, because it runs on an event loop. `re.compile` can take seconds for a few kilobytes: it expands
each class of characters. The parser alone takes about 3 microseconds for each character.
"""

from __future__ import annotations

import re
from re import _parser  # type: ignore[attr-defined]
from typing import Final

MOST_CHECKED: Final = 1_000  # a longer pattern is accepted without a check
# Java and RE2 know these, and Python does not: a Unicode class, and a named group without P.
_CLASS: Final = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)")
_GROUP: Final = re.compile(r"\(\?<(?=[a-zA-Z])")


def syntax_error(pattern: str) -> str | None:
    """Returns the error in a pattern for Java or RE2, as far as Python's parser finds it. Returns None if it finds no
    error."""
    if len(pattern) > MOST_CHECKED:
        return None
    try:
        _parser.parse(_GROUP.sub("(?P<", _CLASS.sub(".", pattern)))
    except RecursionError:
        return "the parentheses are nested too deeply"
    # OverflowError: a number is too large.
    except (re.error, ValueError, OverflowError) as error:
        return str(error)
    return None
