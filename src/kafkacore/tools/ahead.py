"""What a start needs of shared libraries, opened on another core while this one imports Python.

A tenth of a start goes into opening some eighty of them, and none of that needs the GIL.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from kafkacore._fast import preload

_FIRST = ("_ssl", "uvloop/loop")  # the largest, wherever on the path they are
_NOT_STARTED = ("sim", "probe")  # what only tests load


def open_libraries() -> preload.Preload:
    """Begins; whoever asked waits for the end before the process ends."""
    suffix = EXTENSION_SUFFIXES[0]
    own = os.path.dirname(preload.__file__)
    found = [f"{place}/{name}{suffix}" for name in _FIRST for place in sys.path if place]
    found += [
        f"{own}/{name}"
        for name in sorted(os.listdir(own))
        if name.endswith(suffix) and not name.startswith(_NOT_STARTED)
    ]
    return preload.Preload(found)
