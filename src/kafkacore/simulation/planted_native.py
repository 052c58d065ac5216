"""Bugs in native code that a build with KAFKACORE_PLANTED=1 can plant. Other builds, and all wheels, contain no planted
bugs.

To make such a build, run `KAFKACORE_PLANTED=1 ... setup.py build_ext` in a copy of the tree. `ci/sanitize.sh planted`
runs tests with one. A bug is planted for the whole process, so all simulated nodes of a cluster have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from kafkacore._fast.base.debug_checks import PLANTED

# base/planted.pxd reads this variable.
_VARIABLE: Final = "KAFKACORE_PLANTED_BUG"

# Maps the name of each bug to the guarantee that the bug breaks.
NATIVE_BUGS: Final = MappingProxyType(
    {
        "lost-sync": "an acknowledged record survives a power cut if each append is synced",
        "unsynced-high-watermark": "nobody reads a record that a power cut can take back",
        "torn-tail-accepted": "recovery keeps no batch whose checksum is wrong",
        "recovery-point-ahead": "a start checks every record that no sync has covered",
        "producer-epoch-ignored": "a producer with an older epoch is fenced",
        "sequence-gap-accepted": "the batches of an idempotent producer follow each other without a gap",
        "high-watermark-below-min-isr": "nobody reads a record that fewer than min.insync.replicas have (KIP-966)",
        "joining-replica-not-awaited": "a caught-up replica outside the ISR can join it",
        "followers-forgotten": "a follower's position survives a change of the ISR",
        "acknowledgement-outlives-leadership": "a record is acknowledged only in the leadership that appended it",
        "acknowledged-across-truncation": "no truncated record is acknowledged",
        "unfenced-follower": "a follower accepts no records of another leader epoch",
    }
)
# These bugs concern a single log, so clusters without replicas find them.
OF_ONE_LOG: Final = frozenset({"lost-sync", "unsynced-high-watermark", "torn-tail-accepted", "recovery-point-ahead"})


@contextmanager
def planted_natively(name: str) -> Iterator[None]:
    """Plants the bug for the duration of a `with` block. Raises ValueError for an unknown bug, and RuntimeError in a
    build without planted bugs."""
    if name not in NATIVE_BUGS:
        raise ValueError(f"{name!r} is not a native bug; the native bugs are {', '.join(NATIVE_BUGS)}")
    if not PLANTED:
        raise RuntimeError("this build contains no planted bugs: build a copy of the tree with KAFKACORE_PLANTED=1")
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
