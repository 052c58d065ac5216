"""Plants a bug within a `with` block: replaces attributes of Python classes and modules, or plants a bug in native
code."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from kafkacore.simulation.planted_native import planted_natively

Wrong = Callable[..., Any]


class Patch(NamedTuple):
    """A replacement of the attribute `name` of `owner`. `wrong` makes the faulty function from the correct one."""

    owner: str
    name: str
    wrong: Callable[[Wrong], Wrong]


class PlantedBug(NamedTuple):
    """A bug to plant. `breaks` describes it. `nodes` is the smallest cluster that shows the bug, written as for
    `kafkacore simulate --nodes`. `native` is the name of a bug in native code (`planted_native.py`)."""

    name: str
    breaks: str
    patches: tuple[Patch, ...]
    nodes: str = "quorum:3+1"
    native: str = ""


def _owner(path: str) -> Any:
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


@contextmanager
def planted(bug: PlantedBug | None) -> Iterator[None]:
    """Plants the bug for the duration of a `with` block. Raises AttributeError if the code that the bug patches no
    longer exists, and RuntimeError if this build does not contain the native bug."""
    with ExitStack() as stack:
        if bug is not None and bug.native:
            stack.enter_context(planted_natively(bug.native))
        for patch in () if bug is None else bug.patches:
            owner = _owner(patch.owner)
            stack.enter_context(mock.patch.object(owner, patch.name, patch.wrong(getattr(owner, patch.name))))
        yield


def one(owner: str, name: str, wrong: Callable[[Wrong], Wrong]) -> tuple[Patch, ...]:
    return (Patch(owner, name, wrong),)
