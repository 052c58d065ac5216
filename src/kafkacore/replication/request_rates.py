"""The request rates of fetchers over the last minute, for the metric MinFetchRate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final

WINDOW_NS: Final = 60_000_000_000
_LEAST_NS: Final = 1_000_000_000  # a count is not stored if it follows the previous one by less than this


class RequestRates:
    """Computes rates from counts, without a timer. `least` compares each count with the newest stored count that is at
    least a minute old. If there is no such count yet, it compares with zero at the creation of this object.
    """

    def __init__(self, read_ns: Callable[[], int]) -> None:
        self._read_ns = read_ns
        self._seen: deque[tuple[int, Mapping[Hashable, int]]] = deque([(read_ns(), {})])

    def least(self, counts: Mapping[Hashable, int]) -> float:
        """Returns the lowest rate per second of these counters, or 0 without counters."""
        now_ns = self._read_ns()
        while len(self._seen) > 1 and self._seen[1][0] <= now_ns - WINDOW_NS:
            self._seen.popleft()
        since_ns, before = self._seen[0]
        if now_ns - self._seen[-1][0] >= _LEAST_NS:
            self._seen.append((now_ns, dict(counts)))
        elapsed_s = max(now_ns - since_ns, _LEAST_NS) / 1e9
        return min(((count - before.get(key, 0)) / elapsed_s for key, count in counts.items()), default=0.0)
