"""Paths in the tree, and patterns for them: `?`, `*`, `{this,that}`. A backslash removes the special meaning of the
next character."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from kafkacore.inspection.metadata_shell.nodes import Directory, Node

ROOT: Final = "/"


def absolute(path: str, working: Sequence[str]) -> list[str]:
    """Returns the components of a path that begins at the root or in the directory `working`. Resolves `.` and `..`."""
    parts = [] if path.startswith(ROOT) else list(working)
    for part in path.split(ROOT):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def joined(parts: Sequence[str]) -> str:
    return ROOT + ROOT.join(parts)


def is_pattern(path: str) -> bool:
    return any(_expression(part) is not None for part in path.split(ROOT))


def matches(node: Node, parts: Sequence[str], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yields the nodes that a path of patterns matches, each with its own path, in order."""
    if not parts:
        yield at, node
        return
    if not isinstance(node, Directory):
        return
    expression = _expression(parts[0])
    chosen = [parts[0]] if expression is None else [name for name in node.names() if expression.fullmatch(name)]
    for name in chosen:
        child = node.child(name)
        if child is not None:
            yield from matches(child, parts[1:], (*at, name))


@lru_cache
def _expression(component: str) -> re.Pattern[str] | None:
    """Returns the expression for a component with a pattern. Returns None for a name without a pattern, and for a
    malformed pattern, which matches only itself."""
    made, special, in_group = "", False, False
    letters = iter(component)
    for letter in letters:
        if letter == "?":
            made, special = made + ".", True
        elif letter == "*":
            made, special = made + ".*", True
        elif letter == "\\":
            made += re.escape(next(letters, letter))
        elif letter == "{":
            if in_group:
                return None
            made, special, in_group = made + "(?:", True, True
        elif letter == "," and in_group:
            made += "|"
        elif letter == "}" and in_group:
            made, in_group = made + ")", False
        else:
            made += re.escape(letter)
    return re.compile(made) if special and not in_group else None
