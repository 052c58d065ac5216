"""Plants a bug within a `with` block: replaces attributes of Python classes and modules, or plants a bug in native
code."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from kafkacore.simulation.checkers.violation import Checker
from kafkacore.simulation.planted_native import planted_natively

Wrong = Callable[..., Any]


class Patch(NamedTuple):
    """A replacement of the attribute `name` of `owner`. `wrong` makes the faulty function from the correct one."""

    owner: str
    name: str
    wrong: Callable[[Wrong], Wrong]


class PlantedBug(NamedTuple):
    """A bug to plant. `breaks` describes it. `found_by` names the checkers whose invariants the bug breaks: if anything
    else ends a run, the run has found another defect. `nodes` is the smallest cluster that shows the bug, written as
    for `kafkacore simulate --nodes`. `native` is the name of a bug in native code (`planted_native.py`)."""

    name: str
    breaks: str
    patches: tuple[Patch, ...]
    found_by: tuple[type[Checker], ...]
    nodes: str = "quorum:3+1"
    native: str = ""

    def is_found_by(self, invariant: str | None) -> bool:
        """Returns whether a verdict with this broken invariant, or with an error of this name, has found the bug."""
        return invariant in [each.__name__ for each in self.found_by]


def owner_of(path: str) -> Any:
    module, _, name = path.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


def _import_neighbours(module: ModuleType) -> None:
    """Imports all modules of the same package."""
    package = import_module(module.__name__.rpartition(".")[0])
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not each.ispkg:
            import_module(each.name)


@contextmanager
def planted(bug: PlantedBug | None) -> Iterator[None]:
    """Plants the bug for the duration of a `with` block. Raises AttributeError if the code that the bug patches no
    longer exists, and RuntimeError if this build does not contain the native bug.

    A node imports some modules only when it needs them. If such a module imported a faulty function by its name, the
    module would keep that function after the block. So this code imports such modules before it plants the bug.
    """
    patches = () if bug is None else bug.patches
    owners = [owner_of(patch.owner) for patch in patches]
    for owner in owners:
        if isinstance(owner, ModuleType):
            _import_neighbours(owner)
    with ExitStack() as stack:
        if bug is not None and bug.native:
            stack.enter_context(planted_natively(bug.native))
        for owner, patch in zip(owners, patches, strict=True):
            stack.enter_context(mock.patch.object(owner, patch.name, patch.wrong(getattr(owner, patch.name))))
        yield


def one(owner: str, name: str, wrong: Callable[[Wrong], Wrong]) -> tuple[Patch, ...]:
    return (Patch(owner, name, wrong),)
