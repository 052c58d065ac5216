"""What a start needs of libraries and memory, opened and touched on another core while this one imports Python.

A tenth of a start goes into opening some eighty of them, and none of that needs the GIL. What is opened and not needed
would be in the way: each time that memory is mapped, the other core is interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

from kafkacore._fast.base import preload

# Of Python and of uvloop, wherever on the path they are: the largest, then by turns as they are needed.
_FIRST: Final = (
    "_ssl", "uvloop/loop", "_typing", "math", "array", "_bisect", "_struct", "binascii", "_json", "fcntl", "_heapq",
    "_socket", "select", "_posixsubprocess", "_opcode", "_contextvars", "_asyncio", "_queue", "_random", "_sha512",
    "_sha2", "resource",
)  # fmt: skip
# How the names of our own begin that a start does not import.
_NOT_STARTED: Final = (
    "base/java_text", "base/preload", "base/text", "compact/", "hot/heartbeats", "hot/offset_", "log/index_files",
    "log/producer_info", "log/producer_states", "plane/load_client", "plane/probe", "record/batch_scan", "record/describe", "record/message_set",
    "record/old_messages", "record/record_scan", "record/validator", "schema/column", "schema/row_write",
    "world/fault_disk", "world/simulated",
)  # fmt: skip
ARENA_BYTES: Final = 7 << 20  # what the objects of a start take up, and no more: it would be of no use to anybody


def open_libraries() -> preload.Preload:
    """Begins; whoever asked waits for the end before the process ends."""
    other_allocator = "PYTHONMALLOC" in os.environ  # one that has no arenas
    return preload.Preload(libraries(), 0 if other_allocator else ARENA_BYTES)


def libraries() -> list[str]:
    """Their paths, in the order in which they are opened; most of the first ones are not where they are looked for."""
    suffix = EXTENSION_SUFFIXES[0]
    own = os.path.dirname(os.path.dirname(preload.__file__))
    found = [f"{place}/{name}{suffix}" for name in _FIRST for place in sys.path if place]
    found += [
        f"{own}/{package}/{name}"
        for package in sorted(os.listdir(own))
        if os.path.isdir(f"{own}/{package}")
        for name in sorted(os.listdir(f"{own}/{package}"))
        if name.endswith(suffix) and not f"{package}/{name}".startswith(_NOT_STARTED)
    ]
    return found
