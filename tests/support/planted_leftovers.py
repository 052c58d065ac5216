"""Finds what a planted bug leaves behind after its `with` block. Each bug is planted in a new process. There, modules
that are imported for the first time within the block import the faulty function, and may keep it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from kafkacore.controller import quorum
from kafkacore.server import handlers
from kafkacore.simulation.plant import Patch, PlantedBug, Wrong, owner_of, planted
from kafkacore.simulation.planted import BY_NAME
from kafkacore.simulation.trial import QUORUM, try_seed

# The modules that nodes import only when they need them.
LATE = {
    "kafkacore.metadata.change_columns", "kafkacore.server.groups", "kafkacore.server.transactions",
    *(module for table in handlers.TABLES.values() for module in table.values()),
    *(f"{quorum.__name__}.{name}" for name in quorum.ON_REQUEST),
}  # fmt: skip


class _Cut(Exception):
    pass


class _Watched:
    """A planted bug, with weak references to the faulty functions that were made for it."""

    def __init__(self, bug: PlantedBug) -> None:
        self.made: list[weakref.ref[Any]] = []
        patches = tuple(patch._replace(wrong=self._noting(patch.wrong)) for patch in bug.patches)
        self.bug = bug._replace(patches=patches)

    def _noting(self, wrong: Callable[[Wrong], Wrong]) -> Callable[[Wrong], Wrong]:
        def make(right: Wrong) -> Wrong:
            made = wrong(right)
            self.made.append(weakref.ref(made))
            return made

        return make


def _attribute(patch: Patch) -> Any:
    """Returns the patched attribute itself: a static method of a class, for example, and not its function."""
    return vars(owner_of(patch.owner)).get(patch.name)


def _left_behind(name: str) -> list[str]:
    bug = BY_NAME[name]
    watched = _Watched(bug)
    before = [_attribute(patch) for patch in bug.patches]
    try:
        with planted(watched.bug):
            for module in LATE:
                import_module(module)
            try_seed(1, 1, QUORUM)
            raise _Cut
    except _Cut:
        pass
    gc.collect()
    left = [
        f"{patch.owner}.{patch.name} is still patched"
        for patch, right in zip(bug.patches, before, strict=True)
        if _attribute(patch) is not right
    ]
    for patch, wrong in zip(bug.patches, watched.made, strict=True):
        if wrong() is not None:
            left.append(f"something still refers to the faulty {patch.owner}.{patch.name}")
    return left


def left_behind(names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Plants and removes each bug. Yields its name, and a text for each thing that it left behind."""
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, processes, max_tasks_per_child=1) as pool:
        yield from zip(names, pool.map(_left_behind, names), strict=True)
