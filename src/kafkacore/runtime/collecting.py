"""Postpones full garbage collections until the process is idle.

A full collection holds the GIL for milliseconds (five with ten thousand partitions). Meanwhile no request handler runs,
neither for clients nor for the controller. Collections of young objects continue as usual.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_MS: Final = 30_000
# Even a process that is never idle must free its garbage eventually.
BUSY_LOOKS: Final = 20
_IDLE_SHARE: Final = 0.05  # a process is idle if it has used less than this share of one core since the last `look`
_NEVER: Final = 1 << 30


class FullCollections:
    """Decides when full collections run. Call `look` every LOOK_EVERY_MS. `cpu_ns` returns the CPU time of the process,
    and `now_ns` the time of a monotonic clock."""

    def __init__(
        self,
        cpu_ns: Callable[[], int] = time.process_time_ns,
        now_ns: Callable[[], int] = time.monotonic_ns,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._read_cpu_ns, self._read_now_ns, self._collect = cpu_ns, now_ns, collect
        self._cpu_ns, self._now_ns = cpu_ns(), now_ns()
        self._busy_looks = 0

    @staticmethod
    def postpone() -> None:
        """Turns off automatic full collections. From now on only `look` starts a full collection."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)

    def look(self) -> None:
        cpu_ns, now_ns = self._read_cpu_ns(), self._read_now_ns()
        idle = cpu_ns - self._cpu_ns < _IDLE_SHARE * (now_ns - self._now_ns)
        self._cpu_ns, self._now_ns = cpu_ns, now_ns
        if not gc.get_count()[2]:  # no object has grown old since the last full collection
            return
        self._busy_looks += not idle
        if idle or self._busy_looks >= BUSY_LOOKS:
            self._busy_looks = 0
            self._collect()
